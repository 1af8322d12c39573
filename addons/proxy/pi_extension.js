// An extension of pi for one start: its built-in providers send their requests to the proxy.
export default function (pi) {
  const url = process.env.CTXAGENT_PROXY_URL;
  pi.registerProvider("anthropic", { baseUrl: url });
  pi.registerProvider("openai", { baseUrl: `${url}/v1` });
}
