// Keeps a copy of everything for use without a network: what the page needs at once, then the rest in the background.
// files.json lists all files with the hash of their contents, which `zoo explore --static` writes.

const PLACE = new URL("./", self.location).href;
const NAME = `zoo ${new URL(PLACE).pathname}`;

async function fill() {
  const cache = await caches.open(NAME);
  const listed = await (await fetch(`${PLACE}files.json`, { cache: "no-cache" })).json();
  const known = await (await cache.match(`${PLACE}files.json`))?.json();
  for (const [path, hash] of Object.entries(listed)) {
    const address = PLACE + path;
    if (known?.[path] === hash && (await cache.match(address))) continue;
    const answer = await fetch(address, { cache: "no-cache" });
    if (answer.ok) await cache.put(address, answer);
  }
  await cache.put(`${PLACE}files.json`, new Response(JSON.stringify(listed)));
  for (const request of await cache.keys()) {
    const path = request.url.slice(PLACE.length);
    if (!(path in listed) && path !== "files.json") await cache.delete(request);
  }
}

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim().then(() => void fill().catch(() => null))));
self.addEventListener("message", (event) => event.waitUntil(fill().catch(() => null)));

// The network first, so that a new page is seen at once; the copy where there is none.
self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || !request.url.startsWith(PLACE)) return;
  const bare = request.url.split(/[?#]/)[0];
  const address = bare.endsWith("/") ? `${bare}index.html` : bare;
  event.respondWith(
    fetch(request).catch(async () => (await (await caches.open(NAME)).match(address)) ?? Response.error()),
  );
});
