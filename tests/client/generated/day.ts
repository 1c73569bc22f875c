// A day of an agent, through openapi-fetch and the types that openapi-typescript makes.

import createClient from "openapi-fetch";
import type { components, paths } from "./refine.js";

declare const process: { env: Record<string, string> };

type Memory = components["schemas"]["Memory"];

const client = createClient<paths>({
  baseUrl: `${process.env["REFINE_URL"]}/api/v1`,
  headers: { Authorization: `Bearer ${process.env["REFINE_TOKEN"]}` },
});

function done<T>(answer: { data?: T; error?: { detail?: string } }): T {
  if (answer.data === undefined) throw new Error(answer.error?.detail);
  return answer.data;
}

async function day(lockedId: number) {
  const saved: Memory = done(
    await client.POST("/memories", {
      body: { content: "Anna has a sloop.", memory_type: "core" },
    }),
  );
  const path = { memory_id: saved.id };
  const seen = done(await client.GET("/memories/{memory_id}", { params: { path } }));
  const body: components["schemas"]["Correction"] = { content: "Anna has a cutter." };
  const edited: Memory = done(
    await client.PATCH("/memories/{memory_id}", { params: { path }, body }),
  );
  const refused = await client.PATCH("/memories/{memory_id}", {
    params: { path: { memory_id: lockedId } },
    body,
  });
  const page = done(await client.GET("/memories", { params: { query: { limit: 200 } } }));
  const forgotten = done(
    await client.DELETE("/memories/{memory_id}", { params: { path: { memory_id: edited.id } } }),
  );
  return {
    seen: seen.content,
    listed: page.memories.map((memory) => memory.id),
    edited: edited.id,
    refused: refused.error?.status,
    forgotten: forgotten.status,
  };
}

console.log(JSON.stringify(await day(Number(process.env["LOCKED_ID"]))));
