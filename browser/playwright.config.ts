// Tests of the built page. PAGE is the address at which it is served, CHROMIUM the program (by default Playwright's own).

import { defineConfig } from "@playwright/test";

const { PAGE = "http://127.0.0.1:8000/", CHROMIUM } = process.env;

export default defineConfig({
  testDir: "tests",
  testMatch: "*.spec.ts",
  outputDir: process.env.RESULTS ?? "node_modules/.test-results",
  workers: 1,
  reporter: "list",
  timeout: 120_000,
  expect: { timeout: 30_000 },
  use: { baseURL: PAGE, launchOptions: CHROMIUM ? { executablePath: CHROMIUM, args: ["--no-sandbox"] } : {} },
});
