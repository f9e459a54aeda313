(() => {
  "use strict";
  // The slider of a volume. The page holds a figure for each frame with boxes; the others are made from it.
  const volumes = [...document.querySelectorAll(".volume")];
  if (!volumes.length) return;
  const together = document.getElementById("move-together");
  const cases = new Map();

  const counted = (number, kind) => number + " " + kind + (number === 1 ? " box" : " boxes");

  // The figure of all frames without boxes of one volume; `set` turns it to a frame.
  function bareFigure(model, titles, pictures) {
    const figure = model.cloneNode(true);
    figure.classList.add("bare");
    const picture = figure.querySelector("svg");
    picture.querySelectorAll("g").forEach((box) => box.remove());
    let use = picture.querySelector("use");
    if (!use) {
      use = document.createElementNS("http://www.w3.org/2000/svg", "use");
      picture.append(use);
    }
    figure.set = (place) => {
      const image = document.getElementById("picture-" + pictures[place]);
      if (image) {
        picture.setAttribute("viewBox", "0 0 " + image.getAttribute("width") + " " + image.getAttribute("height"));
        use.setAttribute("href", "#" + image.id);
      } else {
        use.removeAttribute("href");
      }
      picture.setAttribute("aria-label", titles[place] + ": no boxes");
      figure.querySelector("figcaption").textContent = image ? "" : "image cannot be shown";
    };
    return figure;
  }

  function setUp(volume) {
    const titles = JSON.parse(volume.dataset.titles);
    const views = volume.querySelector(".views");
    const figures = new Map([...views.children].map((figure) => [Number(figure.dataset.place), figure]));
    const bare = bareFigure(views.firstElementChild, titles, volume.dataset.pictures.split(" "));
    views.append(bare);
    const slider = volume.querySelector("input");
    const output = volume.querySelector("output");
    const boxes = (place, kind) => (figures.has(place) ? figures.get(place).querySelectorAll("g." + kind).length : 0);
    const boxed = [...figures.keys()].filter((place) => boxes(place, "target") + boxes(place, "predicted"));

    function show(place) {
      const figure = figures.get(place) || bare;
      if (figure === bare) bare.set(place);
      for (const other of views.children) other.hidden = other !== figure;
      const words = [titles[place], counted(boxes(place, "target"), "target"), counted(boxes(place, "predicted"), "predicted")];
      slider.value = place;
      slider.setAttribute("aria-valuetext", words.join(", "));
      output.textContent = words.join(", ");
    }

    function move(place) {
      (together.checked ? cases.get(volume.dataset.case) : [show]).forEach((showIn) => showIn(place));
    }

    // The slider says its value itself; what a button did has to be announced.
    function go(way) {
      const here = Number(slider.value);
      output.setAttribute("aria-live", "polite");
      if (way === "back") move(Math.max(0, here - 1));
      if (way === "on") move(Math.min(titles.length - 1, here + 1));
      // Behind the last box comes the first one.
      if (way === "box-back") move(boxed.findLast((place) => place < here) ?? boxed[boxed.length - 1]);
      if (way === "box-on") move(boxed.find((place) => place > here) ?? boxed[0]);
    }

    slider.addEventListener("input", () => {
      output.setAttribute("aria-live", "off");
      move(Number(slider.value));
    });
    volume.querySelectorAll("button").forEach((button) => button.addEventListener("click", () => go(button.dataset.go)));
    cases.set(volume.dataset.case, [...(cases.get(volume.dataset.case) || []), show]);
    volume.querySelector(".frames").hidden = false;
    volume.classList.add("live");
    show(Number(slider.defaultValue));
  }

  volumes.forEach(setUp);
  document.getElementById("together").hidden = false;
})();
