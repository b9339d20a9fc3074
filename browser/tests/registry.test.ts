import { describe, expect, it, vi } from "vitest";
import { details, formula } from "../src/registry";

describe("parts in Portuguese", () => {
  it("have their sizes and formulas translated", () => {
    vi.stubGlobal("document", { documentElement: { lang: "pt" } });
    expect(details("reads the encoder's output, 4 heads of 16, dropout 0.1, weights of self_attn.v2")).toBe(
      "lê a saída do codificador, 4 cabeças de 16, dropout 0,1, pesos de self_attn.v2",
    );
    expect(details("64 → 256 → 64, gelu_new, no biases")).toBe("64 → 256 → 64, gelu_new, sem vieses");
    expect(formula("softmax(Q Kᵀ / √16 + causal mask) V")).toBe("softmax(Q Kᵀ / √16 + máscara causal) V");
    vi.stubGlobal("document", { documentElement: { lang: "en" } });
    expect(details("4 heads of 16")).toBe("4 heads of 16");
  });
});
