// Owns the theme: light, dark, or the system's. Only this browser remembers it.
export type Theme = "system" | "light" | "dark";

const KEY = "flintkv-theme";

function remembered(): Theme {
  try {
    const text = localStorage.getItem(KEY);
    return text === "light" || text === "dark" ? text : "system";
  } catch {
    return "system";
  }
}

let chosen = $state<Theme>(remembered());
const system = window.matchMedia("(prefers-color-scheme: dark)");
let system_dark = $state(system.matches);
system.addEventListener("change", () => (system_dark = system.matches));

function apply(): void {
  if (chosen === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = chosen;
}
apply();

export const theme = {
  get chosen(): Theme {
    return chosen;
  },
  get dark(): boolean {
    return chosen === "system" ? system_dark : chosen === "dark";
  },
  choose(next: Theme): void {
    chosen = next;
    try {
      if (next === "system") localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, next);
    } catch {
      // The browser stores nothing, so the choice lasts until the page is closed.
    }
    apply();
  },
};
