// Pictures that are pasted or dropped: checked, and made small enough to send.

export interface Attachment {
  readonly data: string;
  readonly mimeType: string;
  readonly name: string;
}

const MOST_BYTES = 20_000_000;
const SIDE = 1568;
const KINDS = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** Read a picture; throws one sentence for people where it is none. */
export async function readImage(file: File): Promise<Attachment> {
  const name = file.name || "image";
  if (!KINDS.includes(file.type)) {
    throw new Error(`${name} is no PNG, JPEG, GIF or WebP picture.`);
  }
  if (file.size > MOST_BYTES) {
    throw new Error(`${name} has ${Math.round(file.size / 1e6)} MB; up to 20 MB can be attached.`);
  }
  let bitmap: ImageBitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error(`${name} cannot be read as a picture.`);
  }
  const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
  if (scale === 1 && file.size < 1_500_000 && file.type !== "image/gif") {
    return { data: await base64(file), mimeType: file.type, name };
  }
  // Of an animated picture the first frame is sent.
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  canvas.getContext("2d")!.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  const kind = file.type === "image/jpeg" ? "image/jpeg" : "image/png";
  const blob = await new Promise<Blob | null>((done) => canvas.toBlob(done, kind, 0.9));
  if (!blob) throw new Error(`${name} cannot be made smaller here.`);
  return { data: await base64(blob), mimeType: kind, name };
}

async function base64(blob: Blob): Promise<string> {
  const bytes = new Uint8Array(await blob.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) {
    text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  }
  return btoa(text);
}
