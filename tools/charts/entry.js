// All that page.js uses of Vega: nothing else gets into the packed file.
export { parse, View, Warn } from "vega";
export { expressionInterpreter } from "vega-interpreter";
export { compile } from "vega-lite";
