// What a test asks of a page in the browser. Gives what is wrong, as texts: nothing is wrong with [].
() => {
  const wrong = [];
  const rgb = (text) => text.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const paper = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const page = luminance(paper(document.body));
  if (dark ? page > 0.1 : page < 0.8) wrong.push(`the page's background is ${page} in ${dark ? "dark" : "light"}`);

  for (const element of document.querySelectorAll("h1, h2, p, li, dt, dd, th, td, caption, figcaption, summary, svg text")) {
    if (element.closest("details:not([open])") && element.tagName !== "SUMMARY") continue;
    const style = getComputedStyle(element);
    const ratio = contrast(rgb(element.closest("svg") ? style.fill : style.color), paper(element));
    if (ratio < 4.5) wrong.push(`"${element.textContent.trim()}" has contrast ${ratio.toFixed(2)}`);
  }

  for (const plot of document.querySelectorAll("svg.plot")) {
    const name = plot.id;
    const box = plot.getBoundingClientRect();
    if (box.width < 250 || box.height < 120) wrong.push(`${name} is ${box.width} × ${box.height}`);
    if (box.left < 0 || box.right > document.documentElement.clientWidth) wrong.push(`${name} is cut off`);
    if (plot.getAttribute("role") !== "img" || (plot.getAttribute("aria-label") || "").length < 30)
      wrong.push(`${name} has no text for those who can't see it`);
    const texts = [...plot.querySelectorAll("text")].filter((text) => text.textContent.trim());
    const boxes = texts.map((text) => text.getBoundingClientRect());
    texts.forEach((text, i) => {
      const b = boxes[i];
      if (b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1 || b.bottom > box.bottom + 1)
        wrong.push(`${name}: "${text.textContent.trim()}" is cut off`);
      const size = parseFloat(getComputedStyle(text).fontSize) * plot.getScreenCTM().a;
      if (size < 7.5) wrong.push(`${name}: "${text.textContent.trim()}" is ${size.toFixed(1)} px`);
      for (let j = 0; j < i; j++) {
        const c = boxes[j];
        const width = Math.min(b.right, c.right) - Math.max(b.left, c.left);
        const height = Math.min(b.bottom, c.bottom) - Math.max(b.top, c.top);
        if (width > 2 && height > 3) wrong.push(`${name}: "${text.textContent.trim()}" lies on "${texts[j].textContent.trim()}"`);
      }
    });
    const drawn = [...plot.querySelectorAll("path, use")].filter((path) => /var\(--series/.test(path.outerHTML));
    if (!drawn.length) wrong.push(`${name} shows nothing`);
    for (const path of drawn) {
      const style = getComputedStyle(path);
      const colours = [style.stroke, style.fill].filter((colour) => colour.startsWith("rgb"));
      const best = Math.max(...colours.map((colour) => contrast(rgb(colour), paper(plot.parentElement))));
      if (best < 3) wrong.push(`${name} draws in contrast ${best.toFixed(2)}`);
    }
  }

  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) wrong.push(`the page is ${root.scrollWidth} wide in ${root.clientWidth}`);
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  if (new Set(ids).size !== ids.length) wrong.push("an id is there twice");
  for (const use of document.querySelectorAll("use"))
    if (!document.getElementById(use.getAttribute("href").slice(1))) wrong.push(`${use.getAttribute("href")} is nowhere`);
  return wrong;
}
