// A question before what cannot be undone.
import { h } from "/ui/dom.js";

// ask resolves to true if the answer is yes. The other button has the focus.
export function ask(question, note, yes, danger = false) {
  const no = h("button", { class: "line", value: "" }, "Cancel");
  const sure = h("button", { class: danger ? "danger" : "plain", value: "yes" }, yes);
  const dialog = h("dialog", { "aria-labelledby": "question" },
    h("form", { method: "dialog" }, h("h2", { id: "question" }, question), h("p", {}, note), h("div", { class: "actions" }, no, sure)));
  document.body.append(dialog);
  const back = document.activeElement;
  return new Promise((done) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      back?.focus();
      done(dialog.returnValue === "yes");
    });
    dialog.showModal();
    no.focus();
  });
}
