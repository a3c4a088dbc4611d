"""KServe's client, and its models of the protocol, against a service: a program for an environment
with ``kserve``.

python kserve_client.py ADDRESS SENTENCE ...     prints the embeddings as JSON and as binary tensors
"""

import asyncio
import json
import sys
from typing import Any
from urllib.request import Request, urlopen


async def embeddings(address: str, sentences: list[str]) -> dict[str, list[list[float]]]:
    """Return the embeddings, asked for in both forms of tensors."""
    import numpy as np
    from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
    from kserve.protocol.infer_type import RequestedOutput

    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
    assert await client.is_server_live(address)
    assert await client.is_server_ready(address)
    assert await client.is_model_ready(address, "bifocal")
    found = {}
    for name, is_binary in (("json", False), ("binary", True)):
        tensor = InferInput("text", [len(sentences)], "BYTES")
        tensor.set_data_from_numpy(np.array(sentences, object), binary_data=is_binary)
        wanted = RequestedOutput("embedding", parameters={"binary_data": is_binary})
        request = InferRequest("bifocal", [tensor], request_id="7", request_outputs=[wanted])
        answer = await client.infer(address, request, model_name="bifocal")
        assert (answer.id, answer.model_name) == ("7", "bifocal")
        found[name] = answer.outputs[0].as_numpy().tolist()
    return found


def check_answers(address: str, sentence: str) -> None:
    """Raise a ``ValidationError`` if an answer is not one of the protocol."""
    from kserve.protocol.rest import v2_datamodels as protocol

    body = {
        "id": "7",
        "inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [sentence]}],
    }
    protocol.InferenceRequest.model_validate(body)
    answers: dict[str, tuple[Any, bytes | None]] = {
        "/v2": (protocol.ServerMetadataResponse, None),
        "/v2/health/live": (protocol.ServerLiveResponse, None),
        "/v2/health/ready": (protocol.ServerReadyResponse, None),
        "/v2/models/bifocal": (protocol.ModelMetadataResponse, None),
        "/v2/models/bifocal/ready": (protocol.ModelReadyResponse, None),
        "/v2/models/bifocal/infer": (protocol.InferenceResponse, json.dumps(body).encode()),
    }
    for path, (model, sent) in answers.items():
        with urlopen(Request(address + path, sent, {"content-type": "application/json"})) as answer:
            model.model_validate_json(answer.read())


if __name__ == "__main__":
    check_answers(sys.argv[1], sys.argv[2])
    json.dump(asyncio.run(embeddings(sys.argv[1], sys.argv[2:])), sys.stdout)
