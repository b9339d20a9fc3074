// A worker that fetches files and decompresses them.

import { XzReadableStream } from "xz-decompress";

export interface Packed {
  request: number;
  address: string;
}

export interface Unpacked extends Packed {
  content?: ArrayBuffer;
  problem?: "noFile" | "damaged";
}

const answer = (unpacked: Unpacked) => postMessage(unpacked, { transfer: unpacked.content ? [unpacked.content] : [] });

globalThis.onmessage = async ({ data }: MessageEvent<Packed>) => {
  const found = await fetch(data.address).catch(() => null);
  if (!found?.ok || !found.body) return answer({ ...data, problem: "noFile" });
  try {
    answer({ ...data, content: await new Response(new XzReadableStream(found.body)).arrayBuffer() });
  } catch {
    answer({ ...data, problem: "damaged" });
  }
};
