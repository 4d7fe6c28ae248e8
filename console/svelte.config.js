import { vitePreprocess } from "@sveltejs/vite-plugin-svelte";

export default {
  preprocess: vitePreprocess(),
  compilerOptions: {
    runes: true,
    // Rows that become cards on narrow screens would lose what tables say to screen readers in some browsers.
    warningFilter: (warning) => warning.code !== "a11y_no_redundant_roles",
  },
};
