// A text of the model, drawn as it arrives. The nodes belong to the Markdown engine, not to the framework.
import { useEffect, useRef } from "preact/hooks";
import { MarkdownStream } from "../markdown/stream";
import type { Turn } from "../store";

const SHORTEST = 33;
/** A step may cost a quarter of the time to the next one. */
const REST = 4;
const HIDDEN_PAGE = 250;

interface Props {
  turn: Turn;
  block: number;
  final: string | null;
  onDraw?: () => void;
}

export function Body({ turn, block, final, onDraw }: Props) {
  const root = useRef<HTMLDivElement>(null);
  const stream = useRef<MarkdownStream | null>(null);
  const drawn = useRef(onDraw);
  drawn.current = onDraw;

  useEffect(() => {
    stream.current ??= new MarkdownStream(root.current!);
    const engine = stream.current;
    if (final !== null) {
      engine.finish(final);
      drawn.current?.();
      return;
    }
    let taken = engine.text.length;
    let due = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let frame = 0;
    const draw = () => {
      timer = undefined;
      frame = 0;
      const start = performance.now();
      const text = turn.block(block)?.text ?? "";
      if (
        taken > text.length ||
        !text.startsWith(engine.text.slice(-64), Math.max(taken - 64, 0))
      ) {
        engine.replace(text); // the kernel has another text
      } else {
        engine.append(text.slice(taken));
        engine.draw();
      }
      taken = text.length;
      const end = performance.now();
      due = end + Math.max(SHORTEST, REST * (end - start));
      drawn.current?.();
    };
    const plan = () => {
      if (timer !== undefined || frame) return;
      const wait = due - performance.now();
      if (document.hidden) timer = setTimeout(draw, Math.max(wait, HIDDEN_PAGE));
      else if (wait > 0) timer = setTimeout(draw, wait);
      else frame = requestAnimationFrame(draw);
    };
    const end = turn.pulse.subscribe(plan);
    return () => {
      end();
      clearTimeout(timer);
      cancelAnimationFrame(frame);
    };
  }, [turn, block, final]);

  return <div class="yiem-body jp-RenderedHTMLCommon" ref={root} />;
}
