import asyncio, time, random, json, sys, gc, threading, traceback, collections
import pytest
from exchange_support import make_kit, stream
from strata.exchange.parse import parse_stream
from strata.platform.ids import DEFAULT_TENANT as T
from strata.knowledge.graph_model import Assertion, SourcedAssertion

class Tick:
    def __init__(self): self.holds=[]; self.last=time.perf_counter(); self.stop=False; self.stacks=[]
    async def run(self):
        while True:
            await asyncio.sleep(0.002); now=time.perf_counter(); self.holds.append(now-self.last-0.002); self.last=now
    def watch(self, ident):
        while not self.stop:
            time.sleep(0.01)
            if time.perf_counter()-self.last>0.04:
                f=sys._current_frames().get(ident)
                st=traceback.extract_stack(f)
                self.stacks.append(" < ".join(f"{x.filename.split('/')[-1]}:{x.lineno}:{x.name}" for x in reversed(st[-6:])))
async def measured(name, coro):
    t=Tick(); task=asyncio.create_task(t.run()); th=threading.Thread(target=t.watch,args=(threading.get_ident(),)); th.start()
    s=time.perf_counter()
    try: r=await coro
    finally:
        await asyncio.sleep(0.01); t.stop=True; th.join(); task.cancel()
    h=sorted(t.holds, reverse=True)
    print(f"== {name}: {time.perf_counter()-s:.2f}s worst {[round(x*1000) for x in h[:6]]} ms")
    for k,v in collections.Counter(t.stacks).most_common(5): print("     ",v,k)
    return r
async def test_prof(database, settings):
    kit=make_kit(database, settings); d=random.Random(1)
    lines=[{"taguru_batch":1,"context":"kb","source":"big","create":{}}]
    lines+=[{"subject":f"s{d.randrange(10**9)} name","label":f"l{d.randrange(50)}","object":f"o{d.randrange(10**9)} thing","weight":1.5} for _ in range(100_000)]
    data=stream(*lines)
    st=await asyncio.to_thread(parse_stream,data)
    await measured("import 100k", kit.exchange.import_stream(T, st))
    async def exp():
        n=0
        async for p in await kit.exchange.export(T,"kb"): n+=len(p)
        return n
    await measured("re-import 100k", kit.exchange.import_stream(T, st))
    await measured("export", exp())
    lines=[{"taguru_batch":1,"context":"other","source":"x","create":{}},{"passage":"hi"}]
    await kit.load(*lines)
    await measured("promote dry", kit.exchange.promote(T,"kb","other",["big"],dry_run=True))
    async with database.owner() as c:
        await c.execute("SELECT set_config('strata.tenant_id', $1, false)", str(T))
        cid=await c.fetchval("SELECT context_id FROM context WHERE name='kb'")
        await c.execute("INSERT INTO concept (tenant_id,context_id,name,key) SELECT $1,$2,'x'||md5(n::text),'x'||md5(n::text) FROM generate_series(1,100000) n",T,cid)
        await c.execute("INSERT INTO alias (tenant_id,context_id,namespace,alias,concept_id) SELECT tenant_id,context_id,'concept','al '||name, concept_id FROM concept WHERE name < 's2' LIMIT 20000")
        await c.execute("UPDATE context SET graph_revision=graph_revision+1")
    gc.collect()
    await measured("first resolve 300k", kit.graph.resolve(T,"kb","s123 name"))
    await measured("second resolve 300k", kit.graph.resolve(T,"kb","o123 thing"))
    await measured("explain", kit.graph.explain_resolve(T,"kb","o123 thing","nope"))
    await measured("query all", kit.graph.query(T,"kb",limit=1000))
    await measured("query window", kit.graph.query(T,"kb",limit=1000,since=0))
    await measured("describe", kit.graph.describe(T,"kb","l1"))
    await measured("activate", kit.graph.activate(T,"kb",["s1"]))
    p=await kit.graph.query(T,"kb",limit=2)
    await measured("explore", kit.graph.explore(T,"kb",[p.matches[0].subject]))
    await measured("unreachable", kit.graph.unreachable_from(T,"kb",[p.matches[0].subject]))
    await measured("drift", kit.graph.drift_audit(T,"kb"))
    await measured("consolidation", kit.graph.consolidation_audit(T,"kb",["contradiction","staleness"]))
    await measured("aliases", kit.graph.aliases(T,"kb"))
    await measured("add 10k", kit.graph.add_associations(T,"kb",[SourcedAssertion(Assertion(f"q{i}","l1",f"r{i}",1.0),"s") for i in range(10000)]))
    await measured("stats", kit.graph.stats(T,"kb"))
    await measured("retract source", kit.exchange.retract_source(T,"kb","big"))
    await kit.close()
