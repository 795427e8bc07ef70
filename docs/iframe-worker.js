// The search of pages that are opened from a folder: a browser starts no Worker there, so its script runs in a hidden frame.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const load = (address) =>
        new Promise((done) => {
          const script = frame.contentDocument.createElement("script");
          script.src = address;
          script.onload = done;
          frame.contentDocument.body.append(script);
        });
      inside.importScripts = (...all) => all.reduce((before, each) => before.then(() => load(each)), Promise.resolve());
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside = inside;
      this.ready = load(url);
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }
  };
  window.Worker = window.IFrameWorker;
}
