#!/usr/bin/env bash
# Check a namespace before the first run: permissions, secrets, the Trainer's runtime, MLflow. Changes nothing.
#   deploy/preflight.sh NAMESPACE [SERVICE_ACCOUNT]        SERVICE_ACCOUNT: bifocal, in a profile default-editor
set -euo pipefail
namespace=${1:?usage: deploy/preflight.sh NAMESPACE [SERVICE_ACCOUNT]}
account=${2:-bifocal}
failed=0

# check WHAT REMEDY COMMAND...
check() {
  if "${@:3}" > /dev/null 2>&1; then echo "ok      $1"; else echo "FAILED  $1: $2"; failed=1; fi
}
may() { # may VERB RESOURCE [kubectl options]
  check "$account may $1 $2" "kubectl apply -k your overlay, see deploy/README.md" \
    kubectl auth can-i --quiet "$1" "$2" --as "system:serviceaccount:$namespace:$account" "${@:3}"
}

check "namespace $namespace" "create it, or choose another" kubectl get namespace "$namespace"
check "service account $account" "kubectl apply -k your overlay" kubectl get serviceaccount "$account" --namespace "$namespace"
# What the pods of a run need from KFP's Role pipeline-runner.
may create workflowtaskresults.argoproj.io --namespace "$namespace"
may get secrets --namespace "$namespace"
# What train_distributed needs. 'can-i' answers no to everybody for the resources of a Trainer that is not installed.
runtime="runtime torch-distributed"
if kubectl get clustertrainingruntime torch-distributed > /dev/null 2>&1; then
  echo "ok      $runtime"
  for verb in create get list delete; do
    may "$verb" trainjobs.trainer.kubeflow.org --namespace "$namespace"
  done
  may get clustertrainingruntimes.trainer.kubeflow.org
else
  echo "FAILED  $runtime: install Kubeflow Trainer with its runtimes, or train on one machine" && failed=1
fi
may list pods --namespace "$namespace"
may get pods --subresource=log --namespace "$namespace"
for secret in bifocal-s3 bifocal-mlflow bifocal-notice; do
  check "secret $secret" "write secrets/$secret.env of your overlay" kubectl get secret "$secret" --namespace "$namespace"
done
policy=$(kubectl get configmap workflow-controller-configmap --namespace kubeflow \
  --output 'jsonpath={.data.workflowDefaults}' 2> /dev/null || true)
check "retries of failed steps" "Kubeflow's default policy is OnError: apply deploy/retries.yaml, its header has the command" \
  test "$policy" = "${policy/retryPolicy: OnError/}"
check "MLflow" "kubectl apply -k your overlay of MLflow; kubectl logs --namespace mlflow deployment/mlflow" \
  kubectl wait deployment/mlflow --namespace mlflow --for=condition=Available --timeout=1s
check "label bifocal/mlflow-client" "kubectl label namespace $namespace bifocal/mlflow-client=true" \
  test "$(kubectl get namespace "$namespace" --output 'jsonpath={.metadata.labels.bifocal/mlflow-client}' 2> /dev/null)" = true
exit "$failed"
