// Scenarios: what tests/it/browser.rs has a browser do. Each takes the arguments that the test gives it, and
// fails by throwing. Usage: node scenarios.mjs NAME JSON

import assert from 'node:assert/strict';
import {
  assertAccessible, assertContent, assertFits, assertRanNothing, openPage, screenshot, textOf, withBrowser,
} from './browser.mjs';

const scenarios = {
  /** A file chosen in the page arrives, and the link that appears leads to it. */
  async chooses_a_file(browser, { url, file }) {
    const page = await openPage(browser);
    await page.goto(url);
    const input = await page.$('#file');
    await input.uploadFile(file);
    assert.match(await textOf(page, '#done'), /has arrived/);
    assertContent(page);
    await assertAccessible(page);
    await screenshot(page, 'uploaded');
    return page.$eval('#done a', (link) => link.href);
  },

  /** A file dropped anywhere in the window does as well. */
  async drops_a_file(browser, { url, file }) {
    const page = await openPage(browser);
    await page.goto(url);
    const session = await page.createCDPSession();
    const data = { items: [], files: [file], dragOperationsMask: 1 };
    for (const type of ['dragEnter', 'dragOver']) {
      await session.send('Input.dispatchDragEvent', { type, x: 300, y: 300, data });
    }
    await page.waitForSelector('form.hover');
    await session.send('Input.dispatchDragEvent', { type: 'drop', x: 300, y: 300, data });
    assert.match(await textOf(page, '#done'), /has arrived/);
    assertContent(page);
    return page.$eval('#done a', (link) => link.href);
  },

  /** Without a script the page is a form, and the answer a page. */
  async sends_the_form(browser, { url, file }) {
    const page = await openPage(browser, { script: false });
    await page.goto(url);
    await screenshot(page, 'upload-plain');
    const input = await page.$('#file');
    await input.uploadFile(file);
    await Promise.all([page.waitForNavigation(), page.click('button[type=submit]')]);
    assert.match(await textOf(page, 'main'), /has arrived/);
    assertContent(page);
    return page.$eval('.done a', (link) => link.href);
  },

  /** What cannot be uploaded is said, with and without a script, and the link can be tried again. */
  async is_refused(browser, { url, file, says }) {
    const page = await openPage(browser);
    await page.goto(url);
    const input = await page.$('#file');
    await input.uploadFile(file);
    assert.match(await textOf(page, '#problem'), new RegExp(says));
    await page.waitForSelector('form', { visible: true });
    assertContent(page);

    // As if the page did not know the limit.
    await page.evaluate(() => {
      document.querySelector('form').dataset.maxBytes = 1e18;
      document.querySelector('#problem').hidden = true;
    });
    await input.uploadFile(file);
    assert.match(await textOf(page, '#problem'), new RegExp(says));
    await screenshot(page, 'refused');

    const plain = await openPage(browser, { script: false });
    await plain.goto(url);
    const field = await plain.$('#file');
    await field.uploadFile(file);
    await Promise.all([plain.waitForNavigation(), plain.click('button[type=submit]')]);
    assert.match(await textOf(plain, 'main'), new RegExp(says));
    await Promise.all([plain.waitForNavigation(), plain.click('main a')]);
    await textOf(plain, 'form');
  },

  /** An upload that its user stops can be made again. */
  async is_cancelled(browser, { url, file, large }) {
    const page = await openPage(browser);
    await page.goto(url);
    const session = await page.createCDPSession();
    await session.send('Network.enable');
    const slow = { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: 100_000 };
    await session.send('Network.emulateNetworkConditions', slow);
    await (await page.$('#file')).uploadFile(large);
    assert.match(await textOf(page, '#sending'), /Uploading/);
    await screenshot(page, 'uploading');
    await page.click('#cancel');
    await textOf(page, 'form');
    await session.send('Network.emulateNetworkConditions', { ...slow, uploadThroughput: -1 });
    await (await page.$('#file')).uploadFile(file);
    assert.match(await textOf(page, '#done'), /has arrived/);
  },

  /** A conversation's page shows its images, and no name on it is more than a name. */
  async shows_thumbnails(browser, { url, images }) {
    const page = await openPage(browser);
    await page.goto(url, { waitUntil: 'networkidle0' });
    const widths = await page.$$eval('.preview img', (all) => all.map((image) => image.naturalWidth));
    assert.equal(widths.length, images);
    assert.ok(widths.every((width) => width > 0), String(widths));
    assertContent(page);
    assert.equal(await page.$('script'), null);
    assertRanNothing(page);
  },

  /** What asks for /canary where it runs does not run: opened, framed, embedded, or as an image. */
  async runs_nothing(browser, { urls, elsewhere }) {
    for (const url of urls) {
      const page = await openPage(browser);
      await page.goto(url).catch((error) => assert.match(String(error), /ERR_ABORTED/));
      const frames = `<iframe src="${url}"></iframe><img src="${url}"><embed src="${url}"><object data="${url}"></object>`;
      for (const base of [elsewhere, null]) {
        if (base) await page.goto(base);
        await page.setContent(frames);
        await new Promise((resolve) => setTimeout(resolve, 500));
      }
      assertRanNothing(page);
      await page.close();
    }
  },

  /** What becomes of each address that is opened: the type of the document that it is shown as, or nothing. */
  async shows_inline(browser, { urls }) {
    const shown = [];
    for (const url of urls) {
      const page = await openPage(browser);
      const opened = await page.goto(url).catch((error) => assert.match(String(error), /ERR_ABORTED/));
      const [type, width] = await page.evaluate(() => [document.contentType, document.images[0]?.naturalWidth]);
      assert.notEqual(width, 0);
      // The viewer is a frame in the document that stands for the file.
      if (type === 'application/pdf') await page.waitForFrame((frame) => frame.url().startsWith('chrome-extension:'));
      shown.push(opened ? type : null);
      await page.close();
    }
    return shown;
  },

  /** Everyone can use the pages, on a desk, at night and on a phone; and what they look like, for people to judge. */
  async looks_well(browser, { pages }) {
    const views = {
      light: {},
      dark: { scheme: 'dark' },
      phone: { width: 390, height: 844 },
      narrow: { width: 320, height: 640, scheme: 'dark' },
    };
    for (const [name, url] of Object.entries(pages)) {
      for (const [view, options] of Object.entries(views)) {
        const page = await openPage(browser, options);
        await page.goto(url, { waitUntil: 'networkidle0' });
        await screenshot(page, `${name}-${view}`);
        await assertFits(page);
        await assertAccessible(page);
        await page.close();
      }
    }
  },
};

const [name, given] = process.argv.slice(2);
const answer = await withBrowser((browser) => scenarios[name](browser, JSON.parse(given)));
process.stdout.write(JSON.stringify(answer ?? null));
