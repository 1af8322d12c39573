// An MCP server from the npm package @copilotkit/aimock, over HTTP. The argument is its folder.
// Prints its address, and exits when its standard input is closed.
const { MCPMock } = await import(`${process.argv[2]}/dist/index.js`);
const mock = new MCPMock();
mock.addTool({ name: "weigh", description: "Weighs an animal.", inputSchema: { type: "object" } });
mock.onToolCall("weigh", (given) => `${given.animal ?? "nothing"} weighs 12 kg`);
mock.addResource({ uri: "zoo://map", name: "map" }, { uri: "zoo://map", text: "Walrus: to the left." });
mock.addPrompt({ name: "greet", arguments: [{ name: "whom", required: true }] }, (given) => ({
  messages: [{ role: "user", content: { type: "text", text: `Greet ${given.whom}.` } }],
}));
console.log(await mock.start());
process.stdin.resume().on("end", () => process.exit(0));
