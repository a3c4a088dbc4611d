// The text encoder: ONNX Runtime on one thread, because static hosts do not send the headers that more threads need.
import { env, InferenceSession, Tensor } from "../vendor/ort.js";
import { openReaders, unknownWords } from "./vectorizers.js";

export async function openEncoder({ graph, readers }, read) {
  const [runtime, model, descriptions] = await Promise.all([read("vendor/ort.wasm"), read(graph), read(readers)]);
  env.wasm.numThreads = 1;
  env.wasm.wasmBinary = runtime; // not by its address, because some hosts send another type
  // The weights are converted to float32 once, and not in each search.
  const session = await InferenceSession.create(new Uint8Array(model), { extra: { session: { disable_quant_qdq: "1" } } });
  const opened = openReaders(JSON.parse(new TextDecoder().decode(descriptions)));
  let last = Promise.resolve(); // a session computes one sentence at a time

  async function compute(sentence) {
    const inputs = opened.flatMap((reader) => reader.read(sentence));
    const feeds = inputs.map(([data, shape], number) => {
      const type = data instanceof BigInt64Array ? "int64" : data instanceof Int32Array ? "int32" : "float32";
      return [session.inputNames[number], new Tensor(type, data, shape)];
    });
    const outputs = await session.run(Object.fromEntries(feeds));
    return outputs[session.outputNames[0]].data;
  }

  return {
    embed: (sentence) => (last = last.catch(() => {}).then(() => compute(sentence))),
    unknown: (sentence) => unknownWords(opened, sentence),
  };
}
