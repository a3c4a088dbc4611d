#!/usr/bin/env bash
# Create MLflow's accounts of the pipeline and of the search service, with the passwords of the secrets.
#   deploy/accounts.sh http://localhost:5000 our-mlflow our-pipelines our-search        an account that exists stays as it is
set -euo pipefail
: "${4:?usage: deploy/accounts.sh ADDRESS MLFLOW PIPELINES SEARCH, three overlays}"
server=$1
cd "$(dirname "$0")/overlays"
value() { sed -n "s/^$2=//p" "$1" 2> /dev/null || true; }
admin=$(value "$2/secrets/mlflow-auth.env" admin_password)

create() { # create USERNAME PASSWORD
  if [ -z "$admin" ] || [ -z "$1" ] || [ -z "$2" ]; then echo "a name or password is missing: run deploy/secrets.sh" >&2; exit 1; fi
  case $admin$1$2 in *[\"\\]*) echo "the passwords must not have \" or \\" >&2; exit 1 ;; esac
  # By the standard input: other users of this machine can read a command line.
  answer=$(curl --silent --show-error --config - << CONFIG
url = "$server/api/2.0/mlflow/users/create"
user = "admin:$admin"
header = "Content-Type: application/json"
data = "{\"username\": \"$1\", \"password\": \"$2\"}"
CONFIG
  )
  case $answer in
    *RESOURCE_ALREADY_EXISTS*) check "$1" "$2" ;;
    *'"user"'*) echo "created $1" ;;
    *) echo "FAILED  $1: ${answer:0:300}" >&2; exit 1 ;;
  esac
}

check() { # check USERNAME PASSWORD
  status=$(curl --silent --output /dev/null --write-out '%{http_code}' --config - << CONFIG
url = "$server/api/2.0/mlflow/experiments/get-by-name?experiment_name=Default"
user = "$1:$2"
CONFIG
  ) || true
  case $status in
    401 | 000) echo "FAILED  $1: the account exists with another password ($status): delete it in MLflow, run this again" >&2; exit 1 ;;
    *) echo "kept    $1" ;;
  esac
}

create "$(value "$3/secrets/bifocal-mlflow.env" username)" "$(value "$3/secrets/bifocal-mlflow.env" password)"
create "$(value "$4/secrets/search.env" mlflow_username)" "$(value "$4/secrets/search.env" mlflow_password)"
