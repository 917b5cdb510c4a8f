// Vercel's AI SDK with its provider for servers like OpenAI's. Prints what it got as one JSON object:
//
//   node tests/clients/ai_sdk_client.mjs http://127.0.0.1:8000 http://127.0.0.1:8001
//
// The first server has `tiny`, the second `tiny-tools`.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, Output, streamText, tool } from "ai";
import { z } from "zod";

function model(url, name) {
    return createOpenAICompatible({ name: "tracellm", baseURL: `${url}/v1`, supportsStructuredOutputs: true })(name);
}

const options = { model: model(process.argv[2], "tiny"), temperature: 0, maxRetries: 0 };
const question = "What is the capital of France?";

async function chat() {
    return (await generateText({ ...options, prompt: question })).text;
}

async function stream() {
    const pieces = [];
    for await (const piece of streamText({ ...options, prompt: question }).textStream) {
        pieces.push(piece);
    }
    return pieces;
}

async function error() {
    try {
        await generateText({ ...options, prompt: "hello ".repeat(3000) });
    } catch (thrown) {
        return { types: [thrown.name], message: thrown.message };
    }
    return { types: [], message: "it threw nothing" };
}

async function structured() {
    const schema = z.object({ name: z.string().max(20), age: z.number().int().min(0).max(120) });
    const form = { output: Output.object({ schema }), temperature: 1, seed: 1 };
    return (await generateText({ ...options, ...form, prompt: "Invent a person." })).output;
}

async function tools() {
    const calls = [];
    const functions = {
        get_weather: tool({
            description: "Get the current weather in a city.",
            inputSchema: z.object({ city: z.string() }),
            execute: async ({ city }) => {
                calls.push(["get_weather", city]);
                return "sunny";
            },
        }),
        multiply: tool({
            description: "Multiply two numbers.",
            inputSchema: z.object({ a: z.number().int(), b: z.number().int() }),
            execute: async ({ a, b }) => {
                calls.push(["multiply", a, b]);
                return a * b;
            },
        }),
    };
    const form = { model: model(process.argv[3], "tiny-tools"), tools: functions, stopWhen: isStepCount(3) };
    const shown = [];
    for (const prompt of ["What is the weather in Lisbon?", "What is 23 times 47?", question]) {
        const { text } = await generateText({ ...options, ...form, prompt });
        shown.push({ calls: calls.splice(0), answer: text });
    }
    return shown;
}

const results = {};
for (const part of [chat, stream, error, structured, tools]) {
    try {
        results[part.name] = await part();
    } catch (thrown) {
        console.error(thrown); // and the result is missing
    }
}
console.log(JSON.stringify(results));
