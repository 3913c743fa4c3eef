// Signal: waits for an event or a timeout, whichever comes first. A signal that is raised while no caller waits is
// remembered until the next reset, so none is missed between a check and the wait.

export class Signal {
  #raised = false;
  #wake: (() => void) | undefined;

  get raised(): boolean {
    return this.#raised;
  }

  raise(): void {
    this.#raised = true;
    this.#wake?.();
  }

  reset(): void {
    this.#raised = false;
  }

  /** Resolves when the signal is raised, or after `timeoutMs`; null waits without a limit. */
  async wait(timeoutMs: number | null): Promise<void> {
    if (this.#raised) return;
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      // setTimeout takes at most 2^31-1 ms; a longer wait is cut short, and the caller checks again
      if (timeoutMs !== null)
        timer = setTimeout(resolve, Math.min(Math.max(timeoutMs, 0), 2_147_483_647));
    });
    clearTimeout(timer);
    this.#wake = undefined;
  }
}
