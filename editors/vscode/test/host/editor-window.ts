import type { Locator, Page } from 'playwright-core';

import { eventually } from '../lab/run.ts';

/** The item of ours in the status bar, as people and screen readers have it. */
export interface StatusItem {
  readonly text: string;
  readonly label: string;
}

/** A part of a window, in its pixels. */
export interface Place {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** What a picture of a part has around it. */
const MARGIN = 24;

/** A window of the editor, as a person sees it. */
export class EditorWindow {
  readonly page: Page;

  constructor(page: Page) {
    this.page = page;
  }

  /** Presses a button. */
  async click(label: string): Promise<void> {
    await this.page.getByRole('button', { name: label, exact: true }).first().click();
  }

  /** Waits until a text is there. */
  async see(text: string): Promise<void> {
    await this.page.getByText(text).first().waitFor();
  }

  /** Waits until the item in the status bar says something. */
  async seeStatus(words: string): Promise<void> {
    await eventually(`the status bar says ${words}`, async () =>
      (await this.statusItem()).label.includes(words),
    );
  }

  /** Presses the item in the status bar. */
  async clickStatus(): Promise<void> {
    await this.#item.click();
  }

  async statusItem(): Promise<StatusItem> {
    await this.#item.waitFor();
    const label = await this.#item.locator('a').first().getAttribute('aria-label');
    return { text: (await this.#item.innerText()).trim(), label: label ?? '' };
  }

  get #item(): Locator {
    return this.page.locator('.statusbar-item[id^="keybridge"]').first();
  }

  /** Opens the palette, and says which commands it has for these words. */
  async palette(words: string): Promise<string[]> {
    await this.page.keyboard.press('F1');
    await this.page.locator('.quick-input-widget input').first().waitFor();
    await this.page.keyboard.type(words);
    const rows = this.page.locator('.quick-input-list .monaco-list-row .label-name');
    await rows.filter({ hasText: words }).first().waitFor();
    return rows.allInnerTexts();
  }

  /** Closes a list without choosing anything. */
  async dismiss(): Promise<void> {
    // Before that a key goes elsewhere.
    await this.page.locator('.quick-input-widget :focus').first().waitFor();
    await this.page.keyboard.press('Escape');
  }

  /** The place of a part of the window, with a margin. */
  async around(part: string): Promise<Place> {
    const place = await this.page.locator(part).first().boundingBox();
    const size = this.page.viewportSize();
    if (!place || !size) {
      throw new Error(`${part} is not there`);
    }
    const [x, y] = [Math.max(0, place.x - MARGIN), Math.max(0, place.y - MARGIN)];
    return {
      x,
      y,
      width: Math.min(size.width, place.x + place.width + MARGIN) - x,
      height: Math.min(size.height, place.y + place.height + MARGIN) - y,
    };
  }

  /** Closes the window as a person does: its page is told before it goes. */
  async close(): Promise<void> {
    await this.page.goto('about:blank');
    await this.page.close();
  }
}
