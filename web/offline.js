// The service worker: keeps the page's own files, and lets nothing else be asked for.
const VERSION = "@VERSION@";
const FILES = @FILES@;
const BASE = new URL("./", self.location).href;
const KEPT = new Set(FILES.map((name) => BASE + name));

self.addEventListener("install", (event) => {
  const take = async () => {
    const cache = await caches.open(VERSION);
    await cache.addAll(FILES.map((name) => new Request(BASE + name, { cache: "reload" })));
    await self.skipWaiting();
  };
  event.waitUntil(take());
});

self.addEventListener("activate", (event) => {
  const tidy = async () => {
    for (const name of await caches.keys()) {
      if (name.startsWith("gpusetup-") && name !== VERSION) await caches.delete(name);
    }
    await self.clients.claim();
  };
  event.waitUntil(tidy());
});

self.addEventListener("fetch", (event) => {
  event.respondWith(answer(event.request));
});

async function answer(request) {
  const address = new URL(request.url);
  address.hash = address.search = "";
  let place = address.href;
  if (place.endsWith("/")) place += "index.html";
  if (request.method !== "GET" || !place.startsWith(BASE)) return Response.error();
  const cache = await caches.open(VERSION);
  const kept = await cache.match(place);
  if (kept) return kept;
  const fresh = await fetch(place, { credentials: "omit" });
  if (fresh.ok && !KEPT.has(place)) await cache.put(place, fresh.clone());
  return fresh;
}
