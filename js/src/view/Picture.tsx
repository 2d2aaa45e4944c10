// Images that tools and people bring: rasters as their own data, drawings only as pictures that run nothing.
import { useState } from "preact/hooks";
import type { ImageContent } from "../protocol";

const KINDS = /^image\/(?:png|jpeg|gif|webp|svg\+xml)$/;
const BASE64 = /^[A-Za-z0-9+/=\s]*$/;

export function Picture({ image, alt }: { image: ImageContent; alt: string }) {
  const [broken, setBroken] = useState(false);
  const shown = KINDS.test(image.mimeType) && BASE64.test(image.data) && image.data.length > 0;
  if (!shown || broken) return <p class="yiem-muted">{alt} cannot be shown</p>;
  return (
    <img
      class="yiem-picture"
      alt={alt}
      src={`data:${image.mimeType};base64,${image.data}`}
      onError={() => setBroken(true)}
    />
  );
}
