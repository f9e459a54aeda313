"use strict";
(() => {
  // Printing shows what is folded, and folds it again afterwards.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((element) => { element.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((element) => { element.open = false; }));

  const form = document.getElementById("filters");
  if (!form) return;
  const keys = ["verdict", "task", "region", "system"];
  const selects = keys.map((key) => document.getElementById("filter-" + key));
  const cards = [...document.querySelectorAll("article.case")];
  const values = cards.map((card) => keys.map((key) => card.dataset[key]));
  const shown = document.getElementById("shown");
  // Every system's cards at once would repeat each picture: begin with the first system.
  const initial = ["", "", "", selects[3].options[1].value];

  function matches(card, wanted, except) {
    return wanted.every((value, place) => place === except || value === "" || card[place] === value);
  }

  function apply() {
    const wanted = selects.map((select) => select.value);
    let count = 0;
    cards.forEach((card, number) => {
      const hit = matches(values[number], wanted, -1);
      card.hidden = !hit;
      count += hit ? 1 : 0;
    });
    shown.textContent = count + " shown of " + cards.length;
    // The number beside a choice is how many cards it would show, the other filters as they are.
    selects.forEach((select, place) => {
      const tally = new Map();
      let all = 0;
      values.forEach((card) => {
        if (!matches(card, wanted, place)) return;
        all += 1;
        tally.set(card[place], (tally.get(card[place]) || 0) + 1);
      });
      for (const option of select.options) {
        const number = option.value === "" ? all : tally.get(option.value) || 0;
        option.textContent = option.dataset.name + " (" + number + ")";
      }
    });
  }

  function readHash() {
    const hash = location.hash.slice(1);
    // A plain anchor of the page leaves the filters alone.
    if (hash !== "" && !hash.includes("=")) return false;
    const given = new URLSearchParams(hash);
    selects.forEach((select, place) => {
      const wanted = given.has(keys[place]) ? given.get(keys[place]) : initial[place];
      const known = [...select.options].some((option) => option.value === wanted);
      select.value = known ? wanted : initial[place];
    });
    apply();
    return hash !== "";
  }

  function writeHash() {
    const given = new URLSearchParams();
    selects.forEach((select, place) => {
      if (select.value !== initial[place]) given.set(keys[place], select.value);
    });
    history.replaceState(null, "", "#" + (given.toString() || "gallery"));
  }

  form.hidden = false;
  form.addEventListener("change", () => { apply(); writeHash(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    selects.forEach((select, place) => { select.value = initial[place]; });
    apply();
    writeHash();
  });
  addEventListener("hashchange", readHash);
  selects.forEach((select, place) => { select.value = initial[place]; });
  apply();
  if (readHash()) document.getElementById("gallery").scrollIntoView();
})();
