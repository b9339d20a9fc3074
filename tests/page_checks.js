// What is wrong with a page as it is shown now: a list of complaints, for people. `least` is the least contrast.
async (least) => {
  const complaints = [];
  for (const image of document.images) {
    image.loading = "eager";
    await image.decode().catch(() => complaints.push(`no image: ${image.src}`));
  }
  const wide = document.documentElement.scrollWidth - innerWidth;
  if (wide > 0) complaints.push(`${wide} pixels wider than the window`);

  const parsed = (text) => {
    const [red, green, blue, alpha = 1] = text.match(/[\d.]+/g).map(Number);
    return { rgb: [red, green, blue], alpha };
  };
  const over = (above, below) => above.rgb.map((one, place) => one * above.alpha + below[place] * (1 - above.alpha));
  const luminance = (rgb) => {
    const linear = rgb.map((one) => (one <= 10.31 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const ground = (element) => {
    if (!element) return [255, 255, 255];
    const own = parsed(getComputedStyle(element).backgroundColor);
    return own.alpha === 1 ? own.rgb : over(own, ground(element.parentElement));
  };
  const found = new Map();
  const texts = document.createTreeWalker(document.querySelector(".md-content"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    if (element.closest("svg, .headerlink, .md-clipboard")) continue;
    const backdrop = ground(element);
    const [one, other] = [luminance(over(parsed(getComputedStyle(element).color), backdrop)), luminance(backdrop)];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const kind = `${element.localName}.${[...element.classList].join(".")}`;
    if (contrast < least && !found.has(kind)) found.set(kind, `${contrast.toFixed(2)}: ${texts.currentNode.data.trim().slice(0, 40)}`);
  }
  for (const [kind, problem] of found) complaints.push(`hard to read, ${kind} ${problem}`);
  return complaints;
}
