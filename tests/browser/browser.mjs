// Browser: Chromium, and a page in it whose every complaint is kept.

import assert from 'node:assert/strict';
import { mkdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const require = createRequire(new URL('../../.build/browser/package.json', import.meta.url));
const puppeteer = require('puppeteer-core');

/** Calls `work` with a browser, which is gone afterwards. */
export async function withBrowser(work) {
  const browser = await puppeteer.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    // The pages are our own, and tests often run as root, where Chromium has no sandbox.
    args: ['--no-sandbox', '--disable-quic', '--no-first-run'],
    timeout: 30_000,
  });
  try {
    return await work(browser);
  } finally {
    await browser.close();
  }
}

/** A page that keeps what goes wrong in it, and which addresses it asks for. */
export async function openPage(browser, { width = 1280, height = 800, scheme = 'light', script = true } = {}) {
  const page = await browser.newPage();
  page.setDefaultTimeout(15_000);
  await page.setViewport({ width, height, deviceScaleFactor: width < 500 ? 2 : 1 });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
  await page.setJavaScriptEnabled(script);
  page.complaints = [];
  page.asked = [];
  // Violations of the content security policy are errors of the console, too.
  page.on('console', (message) => {
    if (['error', 'warn'].includes(message.type())) page.complaints.push(message.text());
  });
  page.on('pageerror', (error) => page.complaints.push(String(error)));
  page.on('request', (request) => page.asked.push(request.url()));
  return page;
}

/** Fails where the page complained of anything. */
export function assertContent(page) {
  assert.deepEqual(page.complaints, []);
}

/** Fails where something ran that no page or file of ours may run: it asks for a file called canary. */
export function assertRanNothing(page) {
  assert.deepEqual(page.asked.filter((url) => url.endsWith('/canary')), []);
}

/** Keeps what the page looks like, for people to judge. */
export async function screenshot(page, name) {
  const directory = fileURLToPath(new URL('../../.build/screenshots/', import.meta.url));
  await mkdir(directory, { recursive: true });
  await page.screenshot({ path: `${directory}${name}.png` });
}

/** Waits until the element can be seen, and returns its text. */
export async function textOf(page, selector) {
  const element = await page.waitForSelector(selector, { visible: true });
  return element.evaluate((node) => node.innerText);
}

/** Fails where someone who cannot see, or not well, could not use the page. */
export async function assertAccessible(page) {
  await page.evaluate(await readFile(require.resolve('axe-core/axe.min.js'), 'utf8'));
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  const found = violations.map(({ id, impact, nodes }) => `${impact} ${id}: ${nodes.map((node) => node.html).join(' ')}`);
  assert.deepEqual(found, []);
}

/** Fails where a part of the page is wider than the window. */
export async function assertFits(page) {
  const [inside, outside] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(inside <= outside, `${inside} px in a window of ${outside}`);
}
