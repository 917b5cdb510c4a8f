// Vercel's AI SDK with its provider for servers like OpenAI's. Prints what it got as one JSON object:
//
//   node tests/clients/ai_sdk_client.mjs http://127.0.0.1:8000
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, streamText } from "ai";
import { z } from "zod";

const provider = createOpenAICompatible({
    name: "tracellm",
    baseURL: `${process.argv[2]}/v1`,
    supportsStructuredOutputs: true,
});
const options = { model: provider("tiny"), temperature: 0, maxRetries: 0 };
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

const results = {};
for (const part of [chat, stream, error, structured]) {
    try {
        results[part.name] = await part();
    } catch (thrown) {
        console.error(thrown); // and the result is missing
    }
}
console.log(JSON.stringify(results));
