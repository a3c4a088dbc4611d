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
  [ -z "${forward:-}" ] || kill "$forward" 2> /dev/null || true
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
python containers/build.py --engine docker --base "$base" --torch-backend cpu --group cpu --group tracking \
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

say "MLflow, permissions, bucket"
kubectl wait --namespace kubeflow --for=condition=Available deployment --all --timeout=1200s
kubectl label namespace kubeflow bifocal/mlflow-client=true
kubectl kustomize deploy/overlays/kind > "$work/rendered.yaml"
sed -e "s#image: localhost/bifocal:cpu#image: $cpu#" -e "s#image: localhost/bifocal:tracking#image: $tracking#" \
  "$work/rendered.yaml" | kubectl apply -f -
kubectl wait --namespace kubeflow --for=condition=Complete job/bifocal-bucket --timeout=600s
kubectl wait --namespace mlflow --for=condition=Available deployment/mlflow --timeout=900s
kubectl wait --namespace kubeflow --for=condition=Available deployment/notices --timeout=300s
deploy/preflight.sh kubeflow bifocal

kubectl port-forward --namespace kubeflow service/ml-pipeline 8888:8888 > "$logs/forward.txt" 2>&1 & forward=$!
export KFP_ENDPOINT=http://localhost:8888
timeout 120 sh -c "until curl --fail --silent $KFP_ENDPOINT/apis/v2beta1/healthz > /dev/null; do sleep 2; done"

cat > "$work/repository.yaml" << END
repository: ${E2E_REPOSITORY:-$(git config remote.origin.url)}
END
submit() { # submit OPTION...: print the id of a new run
  # Nodes of kind can pull localhost:5001/...; this machine cannot reach the bucket.
  python -m pipelines run --runner cluster --skip-check images --skip-check buckets --recipe tests/small.yaml \
    --images "$work/images.json" --resources deploy/kind/resources.yaml --resources "$work/repository.yaml" "$@" | tail -n 1
}
state() { python deploy/kind/wait_for_run.py "$1" "$2" | tail -n 1; }
versions() { # number of registered versions
  kubectl exec --namespace mlflow deployment/mlflow --container mlflow -- env MLFLOW_TRACKING_URI=http://localhost:5000 \
    MLFLOW_TRACKING_USERNAME=admin MLFLOW_TRACKING_PASSWORD=only-for-this-test \
    python -c "from mlflow import MlflowClient; print(len(MlflowClient().search_model_versions('name=\"bifocal\"')))"
}
notices() { kubectl logs --namespace kubeflow deployment/notices | { grep NOTICE || true; }; }
# Containers that ran in a run: KFP starts none for a step from the cache.
containers() { kubectl get pods --namespace kubeflow --selector "pipeline/runid=$1" --output name | grep -c container-impl; }

say "1. to the end, with two nodes, one of which is killed"
first=$(submit)
selector=jobset.sigs.k8s.io/replicatedjob-name=node,batch.kubernetes.io/job-completion-index=1
timeout 2400 sh -c "until kubectl get pods --namespace kubeflow --selector $selector \
  --field-selector status.phase=Running --output name | grep -q .; do sleep 1; done" || fail "no second node has started"
kubectl delete pod --namespace kubeflow --selector "$selector" --wait=false
[ "$(state "$first" 3600)" = SUCCEEDED ] || fail "run $first"
[ "$(versions)" = 1 ] || fail "$(versions) versions of the model after one run"
[ -z "$(notices)" ] || fail "a notice after a good run: $(notices)"

say "2. again, from the cache"
second=$(submit)
[ "$(state "$second" 1800)" = SUCCEEDED ] || fail "run $second"
[ "$(versions)" = 1 ] || fail "the run from the cache has registered a version"
[ "$(containers "$second")" -lt "$(($(containers "$first") / 2))" ] || fail "the second run took few steps from the cache"

say "3. a step without enough memory"
printf 'evaluate: {split: val}\n' > "$work/other.yaml"
printf 'steps: {evaluate: {memory: 64Mi, retries: 1}}\n' > "$work/failing.yaml"
third=$(submit --recipe "$work/other.yaml" --resources "$work/failing.yaml")
[ "$(state "$third" 1800)" = FAILED ] || fail "run $third did not fail"
notices | grep -q evaluate || fail "no notice names the step evaluate: $(notices)"

say "passed"
