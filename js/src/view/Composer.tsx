// The box to say something: a prompt, or a word to the turn that runs.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Operation } from "../protocol";
import { type Attachment, readImage } from "./images";
import { HOLDS_KEYS, isComposing } from "./keys";
import type { Engine } from "./mount";

interface Offer {
  /** What is put in the place of the word. */
  readonly text: string;
  readonly about: string;
}

const MOST_IMAGES = 8;

export function Composer({ engine }: { engine: Engine }) {
  const { store, link } = engine;
  const session = store.session.value;
  const box = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useDraft(engine.id);
  const [images, setImages] = useState<readonly Attachment[]>([]);
  const [problem, setProblem] = useState("");
  const [offers, setOffers] = useState<readonly Offer[]>([]);
  const [chosen, setChosen] = useState(0);
  const [over, setOver] = useState(false);
  const escaped = useRef(0);
  const asked = useRef(0);
  const last = useRef("");
  useEffect(() => grow(box.current!), [text]);

  const send = async (op: Operation) => {
    if (!text.trim() && !images.length) return;
    const said = { text, images };
    setText("");
    setImages([]);
    setOffers([]);
    setProblem("");
    const pictures = images.map(({ data, mimeType }) => ({ data, mimeType }));
    const args = op === "prompt" ? { text, images: pictures } : { text };
    const answer = await link.request(op, args);
    if (answer.ok) {
      last.current = said.text;
      return;
    }
    // Nothing that was written is lost.
    setProblem(answer.error);
    setText((now) => now || said.text);
    setImages((now) => (now.length ? now : said.images));
  };
  const offer = async (value: string, at: number) => {
    const mine = ++asked.current;
    const word = /(?:^|\s)(@[\w.]*)$/.exec(value.slice(0, at))?.[1];
    if (!word) return setOffers([]);
    const answer = await link.request("complete", { text: word });
    if (mine !== asked.current) return; // more was typed meanwhile, or one was taken
    setOffers(
      answer.ok && Array.isArray(answer.value) ? (answer.value as Offer[]).slice(0, 8) : [],
    );
    setChosen(0);
  };
  const take = (one: Offer) => {
    asked.current++;
    const at = box.current!.selectionStart;
    const begin = at - (/@[\w.]*$/.exec(text.slice(0, at))?.[0].length ?? 0);
    const next = `${text.slice(0, begin)}${one.text} ${text.slice(at)}`;
    setText(next);
    setOffers([]);
    const caret = begin + one.text.length + 1;
    requestAnimationFrame(() => box.current?.setSelectionRange(caret, caret));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (isComposing(event)) return;
    if (offers.length && pickKey(event)) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      void send(session.busy ? "steer" : "prompt");
    } else if (event.key === "Escape") {
      const now = performance.now();
      if (session.busy && now - escaped.current < 1500) void link.request("stop");
      escaped.current = now;
    } else if (event.key === "ArrowUp" && !text && last.current) {
      event.preventDefault();
      setText(last.current);
    }
  };
  const pickKey = (event: KeyboardEvent): boolean => {
    if (event.key === "Escape") setOffers([]);
    else if (event.key === "ArrowDown") setChosen((chosen + 1) % offers.length);
    else if (event.key === "ArrowUp") setChosen((chosen + offers.length - 1) % offers.length);
    else if (event.key === "Tab" || (event.key === "Enter" && !event.shiftKey))
      take(offers[chosen]!);
    else return false;
    event.preventDefault();
    return true;
  };
  const attach = async (files: readonly File[]) => {
    setProblem("");
    for (const file of files.slice(0, MOST_IMAGES - images.length)) {
      try {
        const image = await readImage(file);
        setImages((now) => [...now, image]);
      } catch (error) {
        setProblem(error instanceof Error ? error.message : String(error));
      }
    }
  };
  const onPaste = (event: ClipboardEvent) => {
    const files = [...(event.clipboardData?.files ?? [])].filter((file) =>
      file.type.startsWith("image/"),
    );
    if (!files.length) return;
    event.preventDefault();
    void attach(files);
  };
  const onDrag = (event: DragEvent) => {
    event.preventDefault();
    event.stopPropagation();
    setOver(event.type === "dragover");
    if (event.type === "drop") void attach([...(event.dataTransfer?.files ?? [])]);
  };
  const list = `yiem-offers-${engine.id}`;
  return (
    <div
      class="yiem-composer"
      data-over={over}
      onDragOver={onDrag}
      onDragLeave={onDrag}
      onDrop={onDrag}
    >
      <Queue engine={engine} />
      {images.length > 0 && (
        <Tray images={images} drop={(at) => setImages(images.filter((_, i) => i !== at))} />
      )}
      {problem && (
        <p class="yiem-error-line" role="alert">
          {problem}
        </p>
      )}
      {offers.length > 0 && (
        <div class="yiem-offers" id={list} role="listbox" aria-label="Completions" tabIndex={-1}>
          {offers.map((one, index) => (
            <div
              key={one.text}
              id={`${list}-${index}`}
              role="option"
              tabIndex={-1}
              aria-selected={index === chosen}
              onMouseDown={(event) => event.preventDefault()}
              onClick={() => take(one)}
            >
              <code>{one.text}</code> <span class="yiem-muted">{one.about}</span>
            </div>
          ))}
        </div>
      )}
      <div class="yiem-box">
        <textarea
          ref={box}
          rows={1}
          dir="auto"
          value={text}
          data-testid="yiem-composer"
          data-stop
          aria-label={session.busy ? "Steer the running answer" : "Ask"}
          placeholder={session.busy ? "Steer the running answer" : "Ask about this notebook"}
          aria-controls={offers.length ? list : undefined}
          aria-autocomplete="list"
          aria-activedescendant={offers.length ? `${list}-${chosen}` : undefined}
          onInput={(event) => {
            const { value, selectionStart } = event.currentTarget;
            setText(value);
            void offer(value, selectionStart);
          }}
          onKeyDown={onKeyDown}
          onPaste={onPaste}
          {...HOLDS_KEYS}
        />
        <span class="yiem-sends">
          {session.busy && (
            <>
              <button
                type="button"
                class="yiem-quiet"
                title="Said when this answer is finished"
                disabled={!text.trim()}
                onClick={() => send("follow_up")}
                {...HOLDS_KEYS}
              >
                Next
              </button>
              <button
                type="button"
                class="yiem-button"
                data-testid="yiem-stop-all"
                onClick={() => link.request("stop")}
                {...HOLDS_KEYS}
              >
                <span aria-hidden="true">■ </span>Stop
              </button>
            </>
          )}
          <button
            type="button"
            class="yiem-button yiem-primary"
            data-testid="yiem-send"
            disabled={!text.trim() && !images.length}
            onClick={() => send(session.busy ? "steer" : "prompt")}
            {...HOLDS_KEYS}
          >
            {session.busy ? "Steer" : "Send"}
          </button>
        </span>
      </div>
    </div>
  );
}

function Queue({ engine }: { engine: Engine }) {
  const { queue } = engine.store.session.value;
  if (!queue.length) return null;
  return (
    <ul class="yiem-chips" aria-label="Waiting to be said">
      {queue.map((item, index) => (
        <li key={item.id} data-testid={`yiem-queue-${index}`}>
          <span class="yiem-muted">{item.mode}</span> {item.text.slice(0, 80)}
          <button
            type="button"
            class="yiem-quiet"
            aria-label={`Remove ${item.text.slice(0, 80)}`}
            onClick={() => engine.link.request("unqueue", { item: item.id })}
            {...HOLDS_KEYS}
          >
            ✕
          </button>
        </li>
      ))}
    </ul>
  );
}

function Tray({ images, drop }: { images: readonly Attachment[]; drop: (at: number) => void }) {
  return (
    <ul class="yiem-chips" aria-label="Attached">
      {images.map((image, index) => (
        <li key={index}>
          <img alt="" src={`data:${image.mimeType};base64,${image.data}`} /> {image.name}
          <button
            type="button"
            class="yiem-quiet"
            aria-label={`Remove ${image.name}`}
            onClick={() => drop(index)}
            {...HOLDS_KEYS}
          >
            ✕
          </button>
        </li>
      ))}
    </ul>
  );
}

/** The draft survives a reload of the page where the browser keeps anything. */
function useDraft(id: string): [string, (next: string | ((now: string) => string)) => void] {
  const key = `yiem_nb/draft/${id}`;
  const [text, set] = useState(() => {
    try {
      return sessionStorage.getItem(key) ?? "";
    } catch {
      return "";
    }
  });
  useEffect(() => {
    try {
      if (text) sessionStorage.setItem(key, text);
      else sessionStorage.removeItem(key);
    } catch {
      // Storage is full or forbidden: the draft lives as long as the page.
    }
  }, [text]);
  return [text, set];
}

/** As high as its text, up to eight lines. */
function grow(box: HTMLTextAreaElement): void {
  box.style.height = "auto";
  const line = Number.parseFloat(getComputedStyle(box).lineHeight) || 18;
  box.style.height = `${Math.min(box.scrollHeight, line * 8 + 12)}px`;
}
