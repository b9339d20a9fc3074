// A worker that fetches files and decompresses them.

import { XzReadableStream } from "xz-decompress";

export interface Unpacked {
  address: string;
  content?: ArrayBuffer;
  problem?: "noFile" | "damaged";
}

const answer = (unpacked: Unpacked) => postMessage(unpacked, { transfer: unpacked.content ? [unpacked.content] : [] });

globalThis.onmessage = async ({ data: address }: MessageEvent<string>) => {
  const found = await fetch(address).catch(() => null);
  if (!found?.ok || !found.body) return answer({ address, problem: "noFile" });
  try {
    answer({ address, content: await new Response(new XzReadableStream(found.body)).arrayBuffer() });
  } catch {
    answer({ address, problem: "damaged" });
  }
};
