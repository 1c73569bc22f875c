// Passkeys: what the browser's authenticator answers goes into a field of the form, which is sent.
// Without script, or without passkeys in the browser, the buttons stay hidden.
"use strict";

(() => {
  const passkeys = window.PublicKeyCredential;
  if (!passkeys?.parseRequestOptionsFromJSON) return;

  const optionsOf = async (button) => {
    const headers = { "X-CSRFToken": button.form.elements.csrf_token.value };
    const answer = await fetch(button.dataset.passkey, { method: "POST", headers });
    if (!answer.ok || answer.redirected) throw new Error("Reload the page, then try again.");
    return answer.json();
  };

  const answerTo = (options) => options.rp
    ? navigator.credentials.create({ publicKey: passkeys.parseCreationOptionsFromJSON(options) })
    : navigator.credentials.get({ publicKey: passkeys.parseRequestOptionsFromJSON(options) });

  const ask = async (button) => {
    const { form } = button;
    if (!form.reportValidity()) return;
    const said = form.querySelector("[data-said]");
    said.textContent = "";
    button.disabled = true;
    try {
      form.elements.passkey.value = JSON.stringify(await answerTo(await optionsOf(button)));
      form.submit();
    } catch (problem) {
      said.textContent = problem instanceof DOMException
        ? "No passkey was used. Try again, or use a code." : problem.message;
    } finally {
      button.disabled = false;
    }
  };

  document.querySelectorAll("button[data-passkey]").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => ask(button));
  });
})();
