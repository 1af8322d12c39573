// Ranks the sections of the site for a question: the worker of the search box. The index comes from
// agent/cli/guide_index.py, which ranks the guide for `ctxagent guide QUESTION`. The messages are
// those of Material for MkDocs.
"use strict"

const SETUP = 0, READY = 1, QUERY = 2, RESULT = 3
const MAX_RESULTS = 30, TEXT_CHARS = 240
let docs, index, weights, synonyms, stopWords

const words = text => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) || []

function stem(word) {
  for (;;) {
    const suffix = index.suffixes.find(
      each => word.endsWith(each) && word.length - each.length >= index.minStem)
    if (!suffix) return word
    word = word.slice(0, -suffix.length)
  }
}

function setUp(data) {
  docs = data.docs
  index = data.config.index
  weights = new Map(Object.entries(index.weights))
  synonyms = new Map(Object.entries(index.synonyms))
  stopWords = new Set(index.stopWords)
}

/** Return the weight of a term in each section. A word that is still typed counts as its beginning. */
function sectionsOf(term, isLast) {
  const found = new Map()
  const add = (name, factor) => {
    const row = weights.get(name) || []
    for (let i = 0; i < row.length; i += 2)
      found.set(row[i], Math.max(found.get(row[i]) || 0, Math.floor(row[i + 1] * factor)))
  }
  add(term, 1)
  for (const other of synonyms.get(term) || []) add(other, index.synonymWeight)
  if (isLast && !found.size)
    for (const name of weights.keys()) if (name.startsWith(term)) add(name, 1)
  return found
}

/** Return the numbers of the sections for a question with their scores, best first. */
function rank(question) {
  const all = words(question), counted = all.filter(word => !stopWords.has(word))
  const terms = [...new Set((counted.length ? counted : all).map(stem))]
  const total = new Map(), matched = new Map()
  terms.forEach((term, place) => {
    for (const [section, weight] of sectionsOf(term, place === terms.length - 1)) {
      total.set(section, (total.get(section) || 0) + weight)
      matched.set(section, (matched.get(section) || 0) + 1)
    }
  })
  return [...total.keys()]
    .map(section => [section, total.get(section) * matched.get(section)])
    .sort((a, b) => b[1] - a[1] || a[0] - b[0])
}

/** Return the part of a text around the first match, with the matches marked. */
function excerpt(html, terms) {
  const text = html.replace(/<[^>]+>/g, " ").replace(/\s+/g, " ")
  const isMatch = word => terms.has(stem(word.toLowerCase()))
  const first = Math.max(0, text.search(/\S/))
  let start = first
  for (const found of text.matchAll(/[\p{L}\p{N}]+/gu))
    if (isMatch(found[0])) {
      start = Math.max(first, text.lastIndexOf(" ", Math.max(0, found.index - 60)))
      break
    }
  const part = text.slice(start, start + TEXT_CHARS)
  return `${start > first ? "… " : ""}${part.replace(/[\p{L}\p{N}]+/gu,
    word => isMatch(word) ? `<mark data-md-highlight>${word}</mark>` : word)} …`
}

/** Return the results, each with its page behind it, as the search box wants them. */
function search(question) {
  const terms = new Set(words(question).filter(word => !stopWords.has(word)).map(stem))
  const pages = new Map(docs.map(doc => [doc.location, doc]))
  return rank(question).slice(0, MAX_RESULTS).map(([number, score]) => {
    const doc = docs[number], page = pages.get(doc.location.split("#")[0])
    const found = {...doc, score, terms: {}, text: excerpt(doc.text, terms)}
    return page && page !== doc ? [found, {...page, score: 0, terms: {}, text: ""}] : [found]
  })
}

addEventListener("message", ({data: message}) => {
  if (message.type === SETUP) {
    setUp(message.data)
    postMessage({type: READY})
  } else if (message.type === QUERY) {
    postMessage({type: RESULT, data: {items: search(message.data)}})
  }
})
