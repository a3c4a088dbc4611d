"""S3: the only package that imports boto3."""
