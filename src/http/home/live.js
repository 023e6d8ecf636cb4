// Live: asks /status for as long as someone looks, and shows the answer. Whatever it says is set as text, never
// as markup. The token stays in this tab.
(() => {
  const PERIOD_MS = 2000;
  const PATIENCE_MS = 10_000;
  const FIRST_RUNS = 10;
  const REFUSED = 'This is not the token of this server. Its operator finds it in .env, as MCP_API_TOKEN.';

  const find = (id) => document.getElementById(id);
  const form = find('sign-in');
  const rows = document.querySelector('.runs tbody');
  let token = '';
  let status = null;
  let showsAll = false;
  /** Which question is the last one: answers to others come too late. */
  let asked = 0;
  let next;

  // A browser may refuse to keep anything.
  const keep = (value) => {
    token = value;
    try {
      if (value) sessionStorage.setItem('token', value);
      else sessionStorage.removeItem('token');
    } catch { /* then it is typed again */ }
  };
  const kept = () => {
    try {
      return sessionStorage.getItem('token') ?? '';
    } catch {
      return '';
    }
  };

  const element = (name, className, ...children) => {
    const node = document.createElement(name);
    if (className) node.className = className;
    node.append(...children);
    return node;
  };
  /** Writes nothing that is there already: selections stay, and nobody is told twice. */
  const write = (node, text) => {
    if (node.textContent !== text) node.textContent = text;
  };
  const complain = (problem) => {
    write(find('problem'), problem);
    find('problem').hidden = !problem;
  };

  const open = () => {
    const wasTyping = form.contains(document.activeElement);
    form.hidden = true;
    find('token').value = '';
    find('token').removeAttribute('aria-invalid');
    find('dashboard').hidden = find('forget').hidden = false;
    if (wasTyping) find('live').focus();
  };
  const close = (problem) => {
    asked += 1;
    clearTimeout(next);
    keep('');
    status = null;
    find('dashboard').hidden = find('forget').hidden = true;
    form.hidden = false;
    complain(problem);
    if (problem) find('token').setAttribute('aria-invalid', 'true');
    find('token').focus();
  };

  const row = (run) => {
    const [word, tone] = outcome(run.status);
    const cell = (className, ...children) => element('td', className, ...children);
    const row = element('tr', '',
      cell('outcome', element('span', `tone ${tone}`, word)),
      cell('language', run.language),
      cell('took', run.durationMs === undefined ? '' : duration(run.durationMs)),
      cell('container', run.warm === undefined ? '' : element('span', run.warm ? 'warm' : 'cold', run.warm ? 'warm' : 'cold')),
      cell('workspace', element('code', '', run.workspace)),
      cell('caller', run.caller),
      cell('when', ''));
    row.dataset.run = run.runId;
    row.dataset.since = run.since;
    return row;
  };

  const showRuns = () => {
    const running = status.running.map((run) => ({ ...run, status: 'running' })).reverse();
    const runs = [...running, ...status.recent];
    const shown = showsAll ? runs : runs.slice(0, Math.max(FIRST_RUNS, running.length));
    const names = (all) => all.map((run) => `${run.runId} ${run.status}`).join();
    if (rows.dataset.names !== names(shown)) {
      rows.dataset.names = names(shown);
      rows.replaceChildren(...shown.map(row));
    }
    for (const [index, run] of shown.entries()) {
      const seconds = (new Date(status.time) - new Date(run.since)) / 1000;
      const { cells } = rows.rows[index];
      if (run.status === 'running') write(cells[2], seconds < 1 ? '' : span(seconds));
      write(cells[6], run.status === 'running' ? 'now' : age(seconds - run.durationMs / 1000));
    }
    rows.parentElement.hidden = !runs.length;
    find('no-runs').hidden = runs.length > 0;
    find('all').hidden = runs.length <= FIRST_RUNS;
    write(find('all'), showsAll ? 'Show fewer' : `Show all ${runs.length}`);
  };

  const showLatency = () => {
    const runs = status.recent;
    find('latency').hidden = !runs.length;
    if (!runs.length) return;
    const kinds = [['warm', true], ['cold', false]].map(([name, warm]) => [name, runs.filter((run) => run.warm === warm)]);
    document.querySelector('.percentiles tbody').replaceChildren(...kinds
      .filter(([, of]) => of.length)
      .map(([name, of]) => {
        const head = element('th', '', element('span', name, name));
        head.scope = 'row';
        const values = [of.length, duration(percentile(of, 0.5)), duration(percentile(of, 0.95))];
        return element('tr', '', head, ...values.map((value) => element('td', '', value)));
      }));
    drawChart(find('chart'), runs);
  };

  const tellNews = (before) => {
    const known = new Set(before.recent.map((run) => run.runId));
    const ended = status.recent.filter((run) => !known.has(run.runId));
    if (!ended.length) return;
    const [{ language, durationMs, status: how }] = ended;
    const last = `${language}, ${outcome(how)[0]}, ${duration(durationMs)}`;
    write(find('news'), ended.length === 1 ? `A run ended: ${last}` : `${ended.length} runs ended; the last: ${last}`);
  };

  const show = (answer) => {
    const before = status;
    status = answer;
    open();
    const { places, queued, warm, uptimeSeconds, problem } = status;
    write(find('running'), `${status.running.length} of ${places}`);
    write(find('queued'), String(queued));
    write(find('warm'), `${warm.spares + warm.next}`);
    write(find('warm-kinds'), `${warm.spares} spare, ${warm.next} for next calls`);
    write(find('uptime'), span(uptimeSeconds));
    find('ready').className = `tone ${problem ? 'bad' : 'good'}`;
    write(find('ready'), problem ? `Not ready: ${problem}` : 'Ready');
    showRuns();
    if (before?.recent[0]?.runId !== status.recent[0]?.runId || !before) showLatency();
    if (before) tellNews(before);
  };

  const ask = async () => {
    clearTimeout(next);
    if (!token || document.hidden) return;
    const mine = asked += 1;
    let answer = null;
    let problem = '';
    try {
      const response = await fetch('status', {
        headers: { authorization: `Bearer ${token}` },
        cache: 'no-store',
        redirect: 'error',
        signal: AbortSignal.timeout(PATIENCE_MS),
      });
      if (response.ok) answer = await response.json();
      else if (response.status === 401) problem = 'refused';
      else problem = `The server answered with status ${response.status}. Trying again.`;
    } catch {
      problem = 'The server does not answer. Trying again.';
    }
    if (mine !== asked) return;
    if (problem === 'refused') return close(REFUSED);
    complain(problem);
    if (answer) show(answer);
    next = setTimeout(ask, PERIOD_MS);
  };

  form.onsubmit = (event) => {
    event.preventDefault();
    const typed = find('token').value.trim().replace(/^bearer\s+/i, '');
    // What is not printable ASCII fits no header, and is no token.
    if (!/^[!-~]+$/.test(typed)) return close(REFUSED);
    keep(typed);
    ask();
  };
  find('forget').onclick = () => close('');
  find('all').onclick = () => {
    showsAll = !showsAll;
    showRuns();
  };
  document.addEventListener('visibilitychange', ask);
  addEventListener('resize', () => {
    if (status?.recent.length) drawChart(find('chart'), status.recent);
  });

  for (const button of document.querySelectorAll('.copy')) {
    button.hidden = false;
    button.onclick = async () => {
      const text = button.parentElement.querySelector('code');
      const label = button.querySelector('span');
      try {
        await navigator.clipboard.writeText(text.textContent);
        label.textContent = 'Copied';
        write(find('news'), 'Copied');
      } catch {
        // Not over plain http: then it is at least selected.
        getSelection().selectAllChildren(text);
        label.textContent = 'Selected';
      }
      setTimeout(() => { label.textContent = 'Copy'; }, 2000);
    };
  }

  form.hidden = false;
  token = kept();
  ask();
})();
