// Writes the types of the API's document: node scripts/openapi.mjs OPENAPI.JSON OUT.TS
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";
import ts from "typescript";

const [from, to] = process.argv.slice(2);
const { openapi, info, components } = JSON.parse(await readFile(from, "utf8"));
const { factory, SyntaxKind } = ts;
const integer = factory.createUnionTypeNode([SyntaxKind.NumberKeyword, SyntaxKind.BigIntKeyword].map(factory.createKeywordTypeNode));

// The schemas alone: paths are the client's own affair.
const tree = await openapiTS(
  { openapi, info, paths: {}, components: { schemas: components.schemas } },
  {
    defaultNonNullable: false, // what has a default may be left out
    emptyObjectsUnknown: true,
    // Beyond 2^53 - 1 the client has bigints. Those of int64 are times, which never get there.
    transform: (schema) => (schema.type === "integer" && schema.format === "uint64" ? integer : undefined),
  },
);
await writeFile(to, `// Made of internal/server/openapi.json by npm run openapi; do not edit.\n${astToString(tree)}`);
