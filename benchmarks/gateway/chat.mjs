// A Chat Completions and Responses server of the npm package @copilotkit/aimock. The arguments are
// its folder, how many calls its model makes, and how the question for a summary begins, with the
// summary. Says its address, for each request what it was, and ends when its standard input does.
const { LLMock } = await import(`${process.argv[2]}/dist/index.js`);
const [calls, question, summary] = [Number(process.argv[3]), process.argv[4], process.argv[5]];
const mock = new LLMock({ port: 0, host: "127.0.0.1" });
let made = 0;
const textOf = (message) =>
  typeof message.content === "string" ? message.content : JSON.stringify(message.content ?? "");
mock.on({ predicate: () => true }, (request) => {
  const asked = request.messages.filter((each) => each.role === "user").at(-1);
  if (asked && textOf(asked).includes(question) && request.messages.at(-1) === asked) {
    console.log("summary");
    return { content: summary };
  }
  made += 1;
  console.log("call");
  if (made > calls) return { content: "All is counted." };
  const command = `echo number ${made}; seq ${made} ${made + 900}`;
  return { toolCalls: [{ name: "Bash", arguments: JSON.stringify({ command }) }] };
});
await mock.start();
console.log(mock.url);
process.stdin.resume().on("end", () => process.exit(0));
