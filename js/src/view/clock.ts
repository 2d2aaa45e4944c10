// Seconds that pass while something runs. No timer ticks while nothing does.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

const now = signal(Date.now());
let users = 0;
let timer: ReturnType<typeof setInterval> | undefined;

/** Seconds since `began`, in the kernel's time; counts while `running`. */
export function useSeconds(began: number, lag: number, running: boolean): number {
  useEffect(() => {
    if (!running) return;
    now.value = Date.now();
    if (users++ === 0) {
      timer = setInterval(() => {
        now.value = Date.now();
      }, 1000);
    }
    return () => {
      if (--users === 0) clearInterval(timer);
    };
  }, [running]);
  return Math.max(0, (now.value + lag - began) / 1000);
}
