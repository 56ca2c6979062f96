/* Search when the pages are opened from disk.

   The search runs in a web worker, and browsers refuse to start one from file:// addresses. So a
   hidden frame stands in for it: it has a global scope of its own, and passes the same messages. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #waiting = [];
    #scope = null;
    #frame = document.createElement("iframe");

    constructor(address) {
      super();
      this.#frame.hidden = true;
      this.#frame.srcdoc = "<!doctype html><title>search</title>";
      const start = () => this.#start(new URL(address, document.baseURI));
      this.#frame.addEventListener("load", start, { once: true });
      document.documentElement.append(this.#frame);
    }

    async #start(address) {
      const scope = this.#frame.contentWindow;
      const load = (source) =>
        new Promise((loaded, failed) => {
          const script = scope.document.createElement("script");
          script.src = new URL(source, address);
          script.onload = loaded;
          script.onerror = failed;
          scope.document.head.append(script);
        });
      scope.importScripts = async (...sources) => {
        for (const source of sources) await load(source);
      };
      scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      await load(address);
      this.#scope = scope;
      this.#waiting.forEach((data) => this.postMessage(data));
    }

    postMessage(data) {
      if (this.#scope) {
        this.#scope.dispatchEvent(new this.#scope.MessageEvent("message", { data }));
      } else {
        this.#waiting.push(data);
      }
    }

    terminate() {
      this.#frame.remove();
    }
  };
}
