// Chart: how long each of the last runs took, in an svg that is as wide as its place on the page.

const drawChart = (svg, newestFirst) => {
  const draw = (name, attributes, ...children) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const runs = newestFirst.toReversed();
  const { clientWidth: width, clientHeight: height } = svg;
  const [left, right, top, bottom] = [52, width - 36, 12, height - 12];

  // Durations spread over powers of ten: on a plain scale one time-out would flatten all others.
  const power = (ms) => Math.log10(Math.max(1, ms));
  const powers = runs.map((run) => power(run.durationMs));
  const lowest = Math.floor(Math.min(...powers));
  const highest = Math.max(lowest + 1, Math.ceil(Math.max(...powers)));
  const y = (ms) => bottom - ((power(ms) - lowest) / (highest - lowest)) * (bottom - top);
  // Few runs keep to the right, where new ones come.
  const places = Math.max(16, runs.length);
  const x = (index) => left + ((index + places - runs.length + 0.5) / places) * (right - left);

  const nodes = [];
  for (let tick = lowest; tick <= highest; tick += 1) {
    const height = y(10 ** tick);
    nodes.push(draw('line', { class: 'grid', x1: left, x2: right, y1: height, y2: height }));
    nodes.push(draw('text', { x: left - 8, y: height + 4, class: 'tick' }, duration(10 ** tick)));
  }
  for (const [index, run] of runs.entries()) {
    const [cx, cy] = [x(index), y(run.durationMs)];
    const kind = `${run.warm ? 'warm' : 'cold'}${run.status === 'ok' ? '' : ' failed'}`;
    nodes.push(draw('g', { class: kind },
      draw('title', {}, `${run.language}, ${duration(run.durationMs)}, ${run.warm ? 'warm' : 'cold'}, ${outcome(run.status)[0]}`),
      draw('line', { x1: cx, x2: cx, y1: bottom, y2: cy }),
      // What is no circle can be told without colours.
      run.warm
        ? draw('circle', { cx, cy, r: 4.5 })
        : draw('path', { d: `M${cx} ${cy - 5.5}l5.5 5.5-5.5 5.5-5.5-5.5z` })));
  }
  for (const [name, share, shift] of [['p50', 0.5, 13], ['p95', 0.95, -5]]) {
    const height = y(percentile(runs, share));
    nodes.push(draw('line', { class: 'percentile', x1: left, x2: width, y1: height, y2: height }));
    nodes.push(draw('text', { x: width, y: height + shift, class: 'tick' }, name));
  }
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.setAttribute('aria-label', `Durations of the last ${runs.length} runs, between ${
    duration(percentile(runs, 0))} and ${duration(percentile(runs, 1))}`);
  svg.replaceChildren(...nodes);
};

