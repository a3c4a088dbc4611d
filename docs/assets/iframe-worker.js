// The search runs in a worker, which browsers do not start on pages from the disk (file:). There, run its script in a hidden
// frame with the interface of a worker.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super()
    const frame = document.createElement("iframe")
    frame.hidden = true
    document.body.append(frame)
    this.inner = frame.contentWindow
    this.inner.document.open()
    this.inner.document.write("<body></body>")
    this.inner.document.close()
    this.inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
    this.inner.importScripts = (...scripts) => Promise.all(scripts.map(script => this.load(script)))
    this.ready = this.load(url)
  }

  load(url) {
    return new Promise((resolve, reject) => {
      const script = this.inner.document.createElement("script")
      script.src = url
      script.onload = resolve
      script.onerror = reject
      this.inner.document.body.append(script)
    })
  }

  postMessage(data) {
    this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })))
  }
}

if (location.protocol === "file:") {
  window.Worker = IFrameWorker
}
