'use strict';
// Sends the chosen or dropped file at once, and shows how far it is. Whatever the server or a file says is
// set as text, never as markup.
(() => {
  const find = (id) => document.getElementById(id);
  const form = document.querySelector('form');
  const input = find('file');
  const parts = [form, find('progress'), find('done')];
  let request = null;

  document.documentElement.classList.add('scripted');
  document.querySelector('span.scripted').hidden = false;
  const until = find('until');
  until.textContent = new Date(until.dateTime).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });

  const show = (part, problem = '') => {
    for (const each of parts) each.hidden = each !== part;
    const sentence = problem && problem[0].toUpperCase() + problem.slice(1) + '.';
    find('problem').textContent = sentence;
    find('problem').hidden = !problem;
  };

  const size = (bytes) => {
    const units = ['bytes', 'KB', 'MB', 'GB', 'TB'];
    let unit = 0;
    while (bytes >= 1000 && unit < units.length - 1) [bytes, unit] = [bytes / 1024, unit + 1];
    return `${bytes.toLocaleString([], { maximumSignificantDigits: 3 })} ${units[unit]}`;
  };

  const send = (files) => {
    const file = files[0];
    if (!file || request) return;
    if (files.length > 1) return show(form, 'this link takes one file');
    const most = Number(form.dataset.maxBytes);
    if (file.size > most) {
      return show(form, `the file has ${size(file.size)}; at most ${size(most)} can be uploaded here`);
    }
    const progress = document.querySelector('progress');
    progress.value = 0;
    find('sending').textContent = 'Uploading';
    show(find('progress'));

    request = new XMLHttpRequest();
    const ended = (part, problem) => {
      request = null;
      show(part, problem);
    };
    request.upload.onprogress = ({ loaded, total }) => {
      progress.value = total ? loaded / total : 1;
      find('sending').textContent = loaded < total
        ? `Uploading: ${size(loaded)} of ${size(total)}`
        : 'Nearly done';
    };
    request.onload = () => {
      const { status, response } = request;
      if (status !== 201 || !response) {
        return ended(form, response?.error?.message ?? `the server answered with status ${status}; try again later`);
      }
      const done = find('done');
      done.querySelector('bdi').textContent = document.querySelector('h1').textContent;
      done.querySelector('.size').textContent = size(response.size);
      done.querySelector('.digest span').textContent = response.sha256;
      done.querySelector('a').href = request.getResponseHeader('location');
      ended(done);
    };
    request.onerror = () => ended(form, 'the connection was lost, or the file cannot be read; try again');
    request.onabort = () => ended(form);
    request.responseType = 'json';
    request.open('PUT', location.href);
    request.send(file);
  };

  find('cancel').onclick = () => request?.abort();
  input.onchange = () => {
    const files = [...input.files];
    // So that choosing the same file again is a change.
    input.value = '';
    send(files);
  };
  // The whole window takes the file: one that misses would replace the page.
  let depth = 0;
  const hover = (change) => {
    depth = Math.max(0, depth + change);
    form.classList.toggle('hover', depth > 0);
  };
  addEventListener('dragenter', (event) => { event.preventDefault(); hover(1); });
  addEventListener('dragleave', () => hover(-1));
  addEventListener('dragover', (event) => event.preventDefault());
  addEventListener('drop', (event) => {
    event.preventDefault();
    hover(-depth);
    send(event.dataTransfer.files);
  });
})();
