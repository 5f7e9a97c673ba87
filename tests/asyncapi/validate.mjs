// Reads {document, events} and prints {diagnostics, refused}: what AsyncAPI's own parser has against the document, and
// the events that are not as their kind's schema in it says.

import { readFileSync } from 'node:fs'
import parserModule from '@asyncapi/parser'
import ajvModule from 'ajv'

const { document, events } = JSON.parse(readFileSync(0, 'utf8'))
const { diagnostics } = await new parserModule.Parser().parse(JSON.stringify(document))

const ajv = new ajvModule.default({ strict: false })
ajv.addSchema({ $id: 'document', ...document })
const refused = events.filter(event => {
  const { payload } = document.components.messages[event.kind]
  return !ajv.validate({ $ref: `document${payload.$ref}` }, event)
})
console.log(JSON.stringify({ diagnostics, refused }))
