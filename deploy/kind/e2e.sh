#!/usr/bin/env bash
# The pipeline of tests/small.yaml on a cluster of this machine: kind, Kubeflow Pipelines, Trainer, MLflow, S3.
#   deploy/kind/e2e.sh                 needs kind, docker, git, a network and 'make setup'; see deploy/README.md
# E2E_BASE is the base image with its digest (default: the present python:3.11-slim-bookworm), E2E_LOGS the folder of the
# logs, E2E_KEEP=1 keeps the cluster, E2E_REPOSITORY is a git address of this checkout that pods can reach.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PWD/.venv/bin:$PATH
KFP=2.17.0 TRAINER=v2.3.0 NODE=kindest/node:v1.36.1
cluster=bifocal-e2e registry=bifocal-e2e-registry
logs=${E2E_LOGS:-$(mktemp -d)}
mkdir -p "$logs"
work=$(mktemp -d)

say() { printf '\n== %s\n' "$*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }

finish() {
  local code=$?
  kubectl get pods --all-namespaces > "$logs/pods.txt" 2>&1 || true
  kubectl get events --all-namespaces --sort-by=.metadata.creationTimestamp > "$logs/events.txt" 2>&1 || true
  kubectl logs --namespace kubeflow --selector pipeline/runid --all-containers --prefix --tail=200 \
    > "$logs/steps.txt" 2>&1 || true
  kubectl logs --namespace mlflow deployment/mlflow > "$logs/mlflow.txt" 2>&1 || true
  for forward in ${forwards:-}; do kill "$forward" 2> /dev/null || true; done
  if [ "${E2E_KEEP:-0}" != 1 ]; then
    kind delete cluster --name "$cluster" || true
    docker rm --force "$registry" > /dev/null 2>&1 || true
  fi
  rm -rf "$work"
  echo "logs: $logs; exit code $code"
}
trap finish EXIT

for tool in kind docker git kubectl; do
  command -v "$tool" > /dev/null || fail "$tool is not installed"
done

say "cluster"
docker run --detach --restart=always --publish 127.0.0.1:5001:5000 --name "$registry" registry:2
kind create cluster --name "$cluster" --image "$NODE" --wait 300s
docker network connect kind "$registry"
for node in $(kind get nodes --name "$cluster"); do
  docker exec "$node" mkdir -p /etc/containerd/certs.d/localhost:5001
  printf '[host."http://%s:5000"]\n' "$registry" \
    | docker exec --interactive "$node" cp /dev/stdin /etc/containerd/certs.d/localhost:5001/hosts.toml
done

say "images"
name=python:3.11-slim-bookworm
base=${E2E_BASE:-$name@$(docker buildx imagetools inspect "$name" --format '{{.Manifest.Digest}}')}
python containers/build.py --engine docker --base "$base" --torch-backend cpu --group cpu --group tracking --group serve \
  --name localhost:5001/bifocal --push --output "$work/built.json"
cpu=$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["cpu"])' "$work/built.json")
tracking=$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["tracking"])' "$work/built.json")
printf '{"cpu": "%s", "gpu": "%s"}\n' "$cpu" "$cpu" > "$work/images.json"

say "Kubeflow Pipelines $KFP"
kubectl apply -k "https://github.com/kubeflow/pipelines.git/manifests/kustomize/cluster-scoped-resources?ref=$KFP"
kubectl wait --for=condition=established --timeout=120s crd/applications.app.k8s.io
kubectl apply -k "https://github.com/kubeflow/pipelines.git/manifests/kustomize/env/platform-agnostic?ref=$KFP"

say "Trainer $TRAINER"
trainer=https://github.com/kubeflow/trainer.git/manifests/overlays
kubectl apply --server-side -k "$trainer/manager?ref=$TRAINER"
kubectl wait --namespace kubeflow-system --for=condition=Available deployment --all --timeout=600s
kubectl apply --server-side -k "$trainer/runtimes?ref=$TRAINER"

say "MLflow, permissions, bucket, retries"
kubectl wait --namespace kubeflow --for=condition=Available deployment --all --timeout=1200s
kubectl label namespace kubeflow bifocal/mlflow-client=true bifocal/s3=true
kubectl patch configmap workflow-controller-configmap --namespace kubeflow --type merge --patch-file deploy/retries.yaml
kubectl kustomize deploy/overlays/kind > "$work/rendered.yaml"
sed -e "s#image: localhost/bifocal:cpu#image: $cpu#" -e "s#image: localhost/bifocal:tracking#image: $tracking#" \
  "$work/rendered.yaml" | kubectl apply -f -
kubectl wait --namespace kubeflow --for=condition=Complete job/bifocal-bucket --timeout=600s
kubectl wait --namespace mlflow --for=condition=Available deployment/mlflow --timeout=900s
kubectl wait --namespace kubeflow --for=condition=Available deployment/notices --timeout=300s

kubectl port-forward --namespace kubeflow service/ml-pipeline 8888:8888 > "$logs/forward.txt" 2>&1 & forwards=$!
export KFP_ENDPOINT=http://localhost:8888
timeout 120 sh -c "until curl --fail --silent $KFP_ENDPOINT/apis/v2beta1/healthz > /dev/null; do sleep 2; done"

cat > "$work/repository.yaml" << END
repository: ${E2E_REPOSITORY:-$(git config remote.origin.url)}
END
# Nodes of kind can pull localhost:5001/...; this machine cannot reach the bucket.
export BIFOCAL_CLUSTER_OPTIONS="--skip-check images --skip-check buckets --images $work/images.json \
  --resources deploy/kind/resources.yaml --resources $work/repository.yaml"
kubectl port-forward --namespace mlflow service/mlflow 5000:5000 > "$logs/mlflow_forward.txt" 2>&1 & forwards="$forwards $!"
export MLFLOW_TRACKING_URI=http://localhost:5000 MLFLOW_TRACKING_USERNAME=admin MLFLOW_TRACKING_PASSWORD=only-for-this-test
export BIFOCAL_SERVE_IMAGE=localhost:5001/bifocal:serve
export KUBECONFIG=${KUBECONFIG:-$HOME/.kube/config}
timeout 120 sh -c "until curl --fail --silent $MLFLOW_TRACKING_URI/health > /dev/null; do sleep 2; done"

say "tests"
pytest tests/cluster --numprocesses 0 --verbose 2>&1 | tee "$logs/tests.txt"

say "passed"
