// A server of all protocols, from the npm package @copilotkit/aimock. The arguments are its folder and
// a JSON list of replies, sent in order. Prints its address, and exits when its standard
// input is closed.
const { LLMock } = await import(`${process.argv[2]}/dist/index.js`);
const replies = JSON.parse(process.argv[3]);
const mock = new LLMock({ port: 0, host: "127.0.0.1" });
mock.on({ predicate: () => true }, () => replies.shift() ?? { content: "There is no reply left." });
await mock.start();
console.log(mock.url);
process.stdin.resume().on("end", () => process.exit(0));
