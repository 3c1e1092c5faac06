// Keeps a page up to date, counts down, copies. Without it the page is the same, as of when it was asked for.
"use strict";

const announcer = document.getElementById("announcer");
let state = document.querySelector("[data-state]")?.dataset.state;
let fetching = false;
let again = false;

function remaining(seconds) {
  const left = Math.max(0, Math.ceil(seconds));
  const parts = [Math.floor(left / 3600), Math.floor(left / 60) % 60, left % 60];
  const shown = parts[0] ? parts : parts.slice(1);
  return shown.map((part, place) => (place ? String(part).padStart(2, "0") : part)).join(":");
}

function tick() {
  const now = Date.now() / 1000;
  for (const clock of document.querySelectorAll("[data-countdown]")) {
    const left = clock.dataset.countdown - now;
    clock.textContent = left > 0 ? remaining(left) : "time is up";
  }
  for (const time of document.querySelectorAll("time[data-until]")) {
    const left = time.dataset.until - now;
    time.title = time.dateTime;
    time.textContent = left > 0 ? `in ${remaining(left)}` : "time is up";
  }
}

// The server renders; what it renders now takes the place of what it rendered before.
async function refresh() {
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
    if (answer.ok) replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    // The next event, or the next time, tries again.
  }
  setTimeout(() => {
    fetching = false;
    if (again) {
      again = false;
      refresh();
    }
  }, 1000);
}

function replace(fresh) {
  for (const region of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(region.id);
    if (!next || region.dataset.rendered === next.innerHTML) continue;
    const focused = region.contains(document.activeElement) ? document.activeElement : null;
    const way = focused && focused !== region ? path(region, focused) : null;
    const scroll = [region.scrollLeft, region.scrollTop];
    region.dataset.rendered = next.innerHTML;
    region.replaceChildren(...next.childNodes);
    [region.scrollLeft, region.scrollTop] = scroll;
    if (way) way.reduce((node, place) => node?.children[place], region)?.focus({ preventScroll: true });
  }
  document.title = fresh.title;
  const now = fresh.querySelector("[data-state]")?.dataset.state;
  if (now && now !== state) announcer.textContent = state = now;
  tick();
  copies();
}

function path(region, node) {
  const places = [];
  for (; node !== region; node = node.parentElement) places.unshift([...node.parentElement.children].indexOf(node));
  return places;
}

function copies() {
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll("[data-copy][hidden]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.dataset.copy);
      announcer.textContent = "Copied";
      button.classList.add("copied-now");
      setTimeout(() => button.classList.remove("copied-now"), 1500);
    });
  }
}

const stream = document.querySelector("[data-events]");
if (stream) {
  const source = new EventSource(stream.dataset.events);
  source.addEventListener("round", (event) => {
    if (JSON.parse(event.data).ended) source.close();
    refresh();
  });
  // A lost stream is opened again by the browser; a refused one is not, and then the page asks by itself.
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) setInterval(() => document.hidden || refresh(), 1000 * stream.dataset.unstreamed);
  });
}
const polled = document.querySelector("[data-poll]");
if (polled) setInterval(() => document.hidden || refresh(), 1000 * polled.dataset.poll);
tick();
setInterval(tick, 1000);
copies();
