// The primaries of a cluster, each a node for itself. The limiter follows MOVED and ASK itself: with the switch by which client
// libraries follow them, some would also send a check again whose connection has ended.

import type { Address, Library, Servers, Word } from './library.js';
import { Node, type NodeOptions } from './node.js';
import { codeOf, isReply } from './outage.js';

const SLOTS = 16384;
const REDIRECTED = /^(MOVED|ASK) (\d+) (.*):(\d+)$/;
const MOST_HOPS = 5;
/** The map is asked for at most once in this time. */
const MAP_MS = 50;

export class Cluster implements Servers {
  readonly #library: Library;
  readonly #options: Pick<NodeOptions, 'timeoutMs' | 'tell'>;
  readonly #nodes = new Map<string, Node>();
  readonly #owners: (Node | undefined)[] = [];
  /** Some node, as long as no map names others. */
  readonly #seed: Node;
  #map: Promise<void> | undefined;

  constructor(library: Library, options: Pick<NodeOptions, 'timeoutMs' | 'tell'>) {
    this.#library = library;
    this.#options = options;
    this.#seed = new Node({ ...options, name: library.name, open: (ms, signal) => library.open(ms, signal) });
  }

  get away(): boolean {
    return [this.#seed, ...this.#nodes.values()].some(({ away }) => away);
  }

  awayFor(key: Word): boolean {
    return (this.#owners[slotOf(key)] ?? this.#seed).away;
  }

  ask(words: readonly Word[], key: Word, repeatable: boolean): Promise<unknown> {
    return this.#follow(key, (node) => node.ask(words, key, repeatable));
  }

  wait(words: readonly Word[], key: Word, ms: number, signal?: AbortSignal): Promise<unknown> {
    return this.#follow(key, (node) => node.wait(words, key, ms, signal));
  }

  close(): void {
    for (const node of [this.#seed, ...this.#nodes.values()]) node.close();
  }

  async #follow(key: Word, ask: (node: Node) => Promise<unknown>): Promise<unknown> {
    const slot = slotOf(key);
    if (!this.#owners[slot]) await this.#askMap();
    let node = this.#owners[slot];
    if (!node) throw new Error('no node of the cluster serves the key');
    for (let hops = 0; ; hops++) {
      try {
        return await ask(node);
      } catch (error) {
        const [, code, moved, host, port] = (isReply(error) && REDIRECTED.exec(error.message)) || [];
        if (isReply(error) && (code === 'MOVED' || codeOf(error) === 'READONLY')) void this.#askMap().catch(() => {});
        if (!code || hops === MOST_HOPS) throw error;
        node = this.#node({ host: host || hostOf(node), port: Number(port) });
        if (code === 'MOVED') this.#owners[Number(moved)] = node;
        else node.ask(['ASKING'], '', false).catch(() => {}); // on the connection of the next command
      }
    }
  }

  /** Asks a node that answers for the map, and forgets the nodes that left it. */
  #askMap(): Promise<void> {
    this.#map ??= this.#readMap().finally(() => setTimeout(() => (this.#map = undefined), MAP_MS).unref());
    return this.#map;
  }

  async #readMap(): Promise<void> {
    const answering = [...this.#nodes.values()].filter(({ away }) => !away);
    const asked = answering[Math.floor(Math.random() * answering.length)] ?? this.#seed;
    const map = (await asked.ask(['CLUSTER', 'SLOTS'], '', true)) as [number, number, [string | null, number]][];
    if (asked === this.#seed) asked.rest();
    this.#owners.length = 0;
    const named = new Set<Node>();
    for (const [first, last, [host, port]] of map) {
      const node = this.#node({ host: host || hostOf(asked), port: Number(port) });
      named.add(node);
      for (let slot = Number(first); slot <= Number(last); slot++) this.#owners[slot] = node;
    }
    for (const [name, node] of this.#nodes) {
      if (named.has(node)) continue;
      this.#nodes.delete(name);
      node.leaveMap();
    }
  }

  #node(address: Address): Node {
    const name = `${address.host}:${address.port}`;
    let node = this.#nodes.get(name);
    if (!node) {
      const open: NodeOptions['open'] = (ms, signal) => this.#library.open(ms, signal, address);
      node = new Node({ ...this.#options, name, open, beforeProbe: () => this.#askMap() });
      this.#nodes.set(name, node);
    }
    return node;
  }
}

function hostOf({ name }: Node): string {
  return name.replace(/:\d+$/, '');
}

/** The slot of a key: the CRC16 (XMODEM) of its hash tag, or else of the whole key. */
export function slotOf(key: Word): number {
  const bytes = Buffer.from(key as string);
  const open = bytes.indexOf('{');
  const close = open < 0 ? -1 : bytes.indexOf('}', open + 1);
  let crc = 0;
  for (const byte of close > open + 1 ? bytes.subarray(open + 1, close) : bytes) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
  }
  return crc % SLOTS;
}
