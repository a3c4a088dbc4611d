#!/usr/bin/env bash
# Write the secrets of overlays, with random passwords where nobody else gives them; files that exist stay as they are.
#   deploy/secrets.sh our-mlflow our-pipelines our-search        prints what it wrote, and what is left to fill in
set -euo pipefail
umask 077
cd "$(dirname "$0")/overlays"
: "${1:?usage: deploy/secrets.sh OVERLAY ...}"
word() { head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }

# The pipeline's canaries call the service by a key of its clients. Only these overlays: that of the tests has keys that are no secret.
key=$(for overlay in "$@"; do cat "$overlay"/secrets/{search,bifocal-service}.env 2> /dev/null || true; done \
  | sed -n 's/^api_keys=\([^,]\{1,\}\).*/\1/p' | head -n 1)
key=${key:-$(word)}
for overlay in "$@"; do
  for example in "$overlay"/secrets/*.example; do
    [ -e "$example" ] || { echo "deploy/overlays/$overlay has no secrets/*.example: copy an overlay" >&2; exit 1; }
    file=${example%.example} partial=${example%.env.example}.partial.env left=()  # git ignores *.env
    ignored=0; git check-ignore -q "$file" 2> /dev/null || ignored=$?  # 1: not ignored; 128: no git
    [ "$ignored" != 1 ] || { echo "git would commit deploy/overlays/$file: add it to .gitignore" >&2; exit 1; }
    if [ -e "$file" ]; then echo "kept    deploy/overlays/$file"; continue; fi
    while IFS= read -r line; do
      case ${file##*/}:$line in
        *:\#*) ;;
        mlflow-auth.env:*= | mlflow-database.env:password= | bifocal-mlflow.env:password= | search.env:mlflow_password=) line+=$(word) ;;
        # Each profile of a cluster has its own account.
        bifocal-mlflow.env:username=) line+=pipeline-${overlay##*/} ;;
        search.env:mlflow_username=) line+=search ;;
        *:api_keys=) line+=$key ;;
        *=) left+=("${line%=}") ;;
      esac
      printf '%s\n' "$line"
    done < "$example" > "$partial"
    mv "$partial" "$file"
    echo "wrote   deploy/overlays/$file${left:+; fill in ${left[*]}}"
  done
done
