// A scripted model for every protocol of the npm package @copilotkit/aimock. The
// arguments are the package's folder and a JSON object: the number of tool `calls`, the
// `image` that one call reads, the beginning of a `question` for a summary, and the `summary`. Prints its
// address, then one line per reply. Exits when its standard input is closed.
const { LLMock } = await import(`${process.argv[2]}/dist/index.js`);
const { calls, image, question, summary } = JSON.parse(process.argv[3]);
const IMAGE_CALL = 5;
const THINKING_EVERY = 5; // replies
const BYTES_PER_TOKEN = 4;
const mock = new LLMock({ port: 0, host: "127.0.0.1" });
let made = 0;
let before = "";

const textOf = (message) =>
  typeof message.content === "string" ? message.content : JSON.stringify(message.content ?? "");

// Tokens are estimated. The prefix shared with the previous request counts as cached.
const usageOf = (request) => {
  const prompt = JSON.stringify([request.tools, request.messages]);
  let same = 0;
  while (same < prompt.length && prompt[same] === before[same]) same += 1;
  before = prompt;
  return {
    prompt_tokens: Math.ceil(prompt.length / BYTES_PER_TOKEN),
    completion_tokens: 50,
    prompt_tokens_details: { cached_tokens: Math.floor(same / BYTES_PER_TOKEN) },
  };
};

const callOf = (name, input) => ({ toolCalls: [{ name, arguments: JSON.stringify(input) }] });

const replyTo = (request) => {
  const said = request.messages.findLastIndex((message) => message.role === "assistant");
  const news = request.messages.slice(said + 1); // a question may come before or after results
  if (news.some((message) => textOf(message).includes(question))) {
    console.log("summary");
    return { content: summary };
  }
  const isAsked = news.some((message) => /and (here|back)\?/.test(textOf(message)));
  if (made >= calls && !isAsked) {
    console.log("answer");
    return { content: "All is counted." };
  }
  made += 1;
  console.log("call");
  const command = `echo number ${made}; seq ${made} ${made + 900}`;
  const call = made === IMAGE_CALL ? callOf("Read", { path: image }) : callOf("Bash", { command });
  return made % THINKING_EVERY === 0 ? { reasoning: `Number ${made} is next.`, ...call } : call;
};

mock.on({ predicate: () => true }, (request) => ({ ...replyTo(request), usage: usageOf(request) }));
await mock.start();
console.log(mock.url);
process.stdin.resume().on("end", () => process.exit(0));
