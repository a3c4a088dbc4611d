"""Amazon S3 and servers with its protocol: upload, download, addresses. The only package that
imports boto3."""
